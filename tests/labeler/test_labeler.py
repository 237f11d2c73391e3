"""The labeler on the demo model: views in, labels out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sapiens_batch.errors import SpecError, WeightsError
from sapiens_batch.images.geometry import crop_map, letterbox, stretch_map
from sapiens_batch.labeler import Labeler, describe
from sapiens_batch.records import Region, TaskLabels, TaskName, ViewBatch, ViewKind, ViewSpec
from sapiens_batch.spec.task import TaskSpec

torch.set_num_threads(1)

NAMES = ("embedding", "pose", "seg", "normal", "pointmap")
TASKS = {name: TaskSpec(checkpoint="demo") for name in NAMES}
SIZE = (400, 300)


def noise_views(spec: ViewSpec, count: int) -> ViewBatch:
    """Views of smooth noise, so that labels vary over the image."""
    view = (spec.height, spec.width)
    region, affine = Region(0, 0, *view), stretch_map(SIZE, view)
    if spec.kind is ViewKind.LETTERBOX:
        region, affine = letterbox(SIZE, view)
    if spec.kind is ViewKind.CROP:
        affine = crop_map((20, 30, 150, 200), view)
    coarse = np.random.default_rng(7).integers(0, 256, (count, *[n // 16 for n in view], 3))
    canvases = coarse.repeat(16, axis=1).repeat(16, axis=2).astype(spec.canvas_dtype)
    canvases.setflags(write=False)
    return ViewBatch(
        spec, canvases, (affine,) * count, (region,) * count, (SIZE,) * count, tuple(range(count))
    )


def label(labeler: Labeler, count: int) -> dict[TaskName, TaskLabels]:
    return labeler.label({spec: noise_views(spec, count) for spec in labeler.view_specs})


@pytest.fixture(scope="module")
def labeler() -> Labeler:
    return Labeler.load(TASKS, device="cpu", batch_views=2)


def test_tasks_with_one_encoder_and_one_view_share_a_forward_pass(labeler: Labeler) -> None:
    before = labeler.num_encoder_calls
    label(labeler, 3)
    # stretch for embedding and seg, letterbox for normal and pointmap, crop for pose: two batches
    assert len(labeler.view_specs) == 3
    assert labeler.num_encoder_calls - before == 6


def test_labels_do_not_depend_on_neighbours_in_the_batch(labeler: Labeler) -> None:
    together = Labeler.load(TASKS, device="cpu", batch_views=5)
    small, large = label(labeler, 5), label(together, 5)
    assert list(small) == list(NAMES)
    for name in ("embedding", "normal", "pointmap"):
        for column, values in small[name].columns.items():
            np.testing.assert_allclose(values, large[name].columns[column], rtol=1e-4, atol=1e-4)
    for name in ("normal", "pointmap"):
        np.testing.assert_allclose(small[name].array, large[name].array, rtol=2e-3, atol=2e-3)
    assert (small["seg"].array == large["seg"].array).mean() > 0.9999
    keypoints = small["pose"].columns["keypoints"] - large["pose"].columns["keypoints"]
    assert np.nanquantile(np.abs(keypoints), 0.98) < 0.01


def test_rows_come_in_the_order_of_the_views(labeler: Labeler) -> None:
    spec = next(spec for spec in labeler.view_specs if spec.kind is ViewKind.STRETCH)
    views = {other: noise_views(other, 0) for other in labeler.view_specs}
    many = noise_views(spec, 4)
    whole = labeler.label(views | {spec: many})["embedding"].columns["embedding"]
    last = labeler.label(views | {spec: many.select(3, 4)})["embedding"].columns["embedding"]
    np.testing.assert_allclose(whole[3], last[0], atol=1e-5)
    assert np.abs(whole[2] - last[0]).max() > 1e-3


def test_no_views_give_labels_of_zero_rows_and_no_forward_pass(labeler: Labeler) -> None:
    before = labeler.num_encoder_calls
    labels = label(labeler, 0)
    assert labeler.num_encoder_calls == before
    assert labels["seg"].array.shape == (0, 256, 192)
    assert labels["pose"].columns["keypoints"].shape == (0, 308, 2)


def test_the_flip_test_averages_with_the_mirrored_view() -> None:
    plain = Labeler.load({"pose": TASKS["pose"]}, device="cpu")
    flipping = {"pose": TaskSpec(checkpoint="demo", flip_test=True)}
    flipped = Labeler.load(flipping, device="cpu")
    spec = plain.view_specs[0]
    views = noise_views(spec, 1)
    # a person who is his own mirror image scores alike left and right
    half = views.canvases[:, :, : spec.width // 2]
    symmetric = np.concatenate([half, half[:, :, ::-1]], axis=2)
    views = ViewBatch(
        spec, symmetric, views.to_source, views.content, views.source_sizes, views.rows
    )
    scores = flipped.label({spec: views})["pose"].columns["keypoint_scores"][0]
    np.testing.assert_allclose(scores[41], scores[62], rtol=1e-4)
    alone = plain.label({spec: views})["pose"].columns["keypoint_scores"][0]
    assert abs(alone[41] - alone[62]) > 1e-3


def test_schemas_are_known_without_weights(labeler: Labeler) -> None:
    described = describe(TASKS)
    for name, task in described.items():
        assert repr(task.schema) == repr(labeler.schemas[name])
    assert {task.view_spec for task in described.values()} == set(labeler.view_specs)


def test_lower_precision_gives_similar_labels(labeler: Labeler) -> None:
    lower = Labeler.load({"seg": TASKS["seg"]}, device="cpu", dtype="bfloat16", batch_views=2)
    same = label(lower, 2)["seg"].array == label(labeler, 2)["seg"].array
    assert same.mean() > 0.9


@pytest.mark.parametrize("device", ["tpu", "cuda:99", "meta"])
def test_a_device_that_is_not_there_is_refused(device: str) -> None:
    with pytest.raises(SpecError, match=r"runtime\.device"):
        Labeler.load(TASKS, device=device)


def test_a_task_that_is_not_there_is_refused() -> None:
    with pytest.raises(SpecError, match=r"tasks\.gaze"):
        describe({"gaze": TaskSpec(checkpoint="demo")})


def test_a_checkpoint_that_is_not_there_is_refused() -> None:
    with pytest.raises(WeightsError, match="does not exist"):
        describe({"pose": TaskSpec(checkpoint="/nowhere/model.safetensors")})


def test_confidence_of_two_views_comes_with_the_flip_test() -> None:
    settings = {"confidence": "columns", "flip_test": True}
    tasks = {
        name: TaskSpec(checkpoint="demo", **settings) for name in ("normal", "pointmap", "seg")
    }
    labels = label(Labeler.load(tasks, device="cpu", batch_views=2), 3)
    apart = labels["normal"].columns["normal_disagreement"]
    assert ((apart > 0) & (apart <= 180)).all()
    assert (labels["pointmap"].columns["pointmap_disagreement"] > 0).all()
    columns = labels["seg"].columns
    assert columns["seg_class_confidence"].shape == (3, 29)
    assert ((columns["seg_confidence"] > 1 / 29) & (columns["seg_confidence"] <= 1)).all()
    assert (columns["seg_class_confidence"][columns["seg_class_pixels"] == 0] != 0).all()
