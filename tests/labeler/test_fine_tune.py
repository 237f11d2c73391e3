"""Fine-tunes as people have them: their own size, pixels, classes, keypoints and names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812 (the name that torch's own documentation uses)

from sapiens_batch.errors import SpecError, WeightsError
from sapiens_batch.images.views import make_view
from sapiens_batch.labeler import Labeler, resolve
from sapiens_batch.records import CANVAS_STEPS, Array, ViewKind, ViewSpec
from sapiens_batch.spec.task import TaskSpec

transformers = pytest.importorskip("transformers")

CLASSES = [f"garment {number}" for number in range(28)]
JOINTS = [f"joint {number}" for number in range(24)]
PAIRS = [[0, 1], [4, 9], [23, 2]]
MEAN, STD = [0.4, 0.5, 0.6], [0.3, 0.25, 0.2]
BOX = [30.0, 20.0, 120.0, 200.0]
Saved = Callable[..., Any]
torch.set_num_threads(1)


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    """Saves a small model of the port with its processor, 640 x 480 unless told otherwise."""

    def make(name: str, labels: list[str], size: tuple[int, int] = (640, 480), **more: Any) -> Any:
        torch.manual_seed(0)
        names = dict(enumerate(labels))
        settings = transformers.Sapiens2Config(
            hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            layerscale_value=0.7, initializer_range=0.2, id2label=names,
            label2id={name: number for number, name in names.items()}, **more,
        )  # fmt: skip
        model = getattr(transformers, name)(settings).eval()
        model.save_pretrained(tmp_path)
        processor = {
            "size": {"height": size[0], "width": size[1]},
            "image_mean": MEAN, "image_std": STD, "do_pad": False,
        }  # fmt: skip
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
        return model

    return make


def seg(saved: Saved, labels: list[str] = CLASSES, **more: Any) -> Any:
    widths = {"upsample_out_channels": [8, 8, 8, 8], "conv_out_channels": [8]}
    return saved("Sapiens2ForSemanticSegmentation", labels, head_config=widths, **more)


def pose(saved: Saved, **more: Any) -> Any:
    widths = {"upsample_out_channels": [8, 8], "conv_out_channels": [8]}
    return saved("Sapiens2ForPoseEstimation", JOINTS, head_config=widths, **more)


def labeler(folder: Path, task: str, **settings: Any) -> Labeler:
    specs = {task: TaskSpec(checkpoint=str(folder), **settings)}
    return Labeler.load(specs, device="cpu", accept_licences=["sapiens2"], batch_views=2)


def picture() -> Array:
    coarse = np.random.default_rng(2).integers(0, 256, (12, 10, 3), dtype=np.uint8)
    return coarse.repeat(20, 0).repeat(20, 1)


def normalised(canvas: Array) -> torch.Tensor:
    pixels = (torch.tensor(canvas).float() / 255 - torch.tensor(MEAN)) / torch.tensor(STD)
    return pixels.permute(2, 0, 1)[None]


def test_own_classes_at_an_own_size_with_own_pixels_are_those_of_the_port(
    saved: Saved, tmp_path: Path
) -> None:
    model, ours = seg(saved), labeler(tmp_path, "seg")
    (labels,) = ours.label_images([picture()])
    canvas = make_view(picture(), ViewSpec(ViewKind.STRETCH, 640, 480)).canvas
    with torch.inference_mode():
        logits = model(normalised(canvas)).logits
    frame = labels.labels["seg"].frames[0]
    wanted = F.interpolate(logits, size=(frame.height, frame.width), mode="bilinear").argmax(1)[0]
    found = labels.labels["seg"].array[0, : frame.height, : frame.width]
    assert (frame.height, frame.width) == (576, 480)
    assert (found == wanted.numpy()).mean() >= 0.9999
    metadata = ours.schemas["seg"].metadata
    assert (metadata["classes"], metadata["vocabulary"]) == (CLASSES, "config.json")
    assert metadata["map_to_v2"] is None


def test_own_keypoints_with_pairs_have_a_flip_test(saved: Saved, tmp_path: Path) -> None:
    model, ours = pose(saved, flip_pairs=PAIRS), labeler(tmp_path, "pose", flip_test=True)
    (labels,) = ours.label_images([picture()], [[BOX]])
    metadata = ours.schemas["pose"].metadata
    assert (metadata["keypoints"], metadata["flip_pairs"]) == (JOINTS, PAIRS)
    canvas = make_view(picture(), ViewSpec(ViewKind.CROP, 640, 480), np.float32(BOX)).canvas
    pixels = normalised(canvas.astype(np.float32) / CANVAS_STEPS)
    order = list(range(24))
    for left, right in PAIRS:
        order[left], order[right] = right, left
    with torch.inference_mode():
        plain, mirrored = model(pixels).heatmaps, model(pixels.flip(-1)).heatmaps.flip(-1)
    merged = (plain + mirrored[:, order]) / 2
    scores = labels.column("pose", "keypoint_scores")
    np.testing.assert_allclose(scores[0], merged.amax((2, 3))[0].numpy(), rtol=1e-4, atol=1e-4)


def test_a_vocabulary_of_the_job_file_names_what_the_weights_do_not(
    saved: Saved, tmp_path: Path
) -> None:
    pose(saved)
    path = tmp_path / "names.json"
    names = [f"landmark {number}" for number in range(24)]
    path.write_text(json.dumps({"names": names, "flip_pairs": PAIRS, "skeleton": [[0, 1]]}))
    ours = labeler(tmp_path, "pose", flip_test=True, vocabulary=str(path))
    metadata = ours.schemas["pose"].metadata
    assert (metadata["keypoints"], metadata["vocabulary"]) == (names, "job file")
    assert metadata["skeleton"] == [[0, 1]]
    path.write_text(json.dumps({"names": names[:20]}))
    with pytest.raises(WeightsError, match=r"job file names 20.*24 channels"):
        labeler(tmp_path, "pose", vocabulary=str(path))


def test_a_flip_test_without_pairs_is_refused_with_what_to_do(saved: Saved, tmp_path: Path) -> None:
    pose(saved)
    with pytest.raises(SpecError, match=r"24 keypoints.*give flip_pairs in a file"):
        labeler(tmp_path, "pose", flip_test=True)


def test_a_task_at_a_size_of_its_own_has_a_digest_of_its_own(saved: Saved, tmp_path: Path) -> None:
    seg(saved)
    specs = {
        "trained": TaskSpec(checkpoint=str(tmp_path)),
        "smaller": TaskSpec(checkpoint=str(tmp_path), image_size=(320, 240)),
        "named": TaskSpec(checkpoint=str(tmp_path), vocabulary="seg28_v1"),
    }
    found = {
        name: resolve({"seg": spec}, accepted=["sapiens2"])["seg"] for name, spec in specs.items()
    }
    assert len({checkpoint.digest for checkpoint in found.values()}) == 3
    assert len({checkpoint.weights_sha256 for checkpoint in found.values()}) == 1
    ours = labeler(tmp_path, "seg", image_size=(320, 240))
    assert ours.view_specs[0].height == ours.schemas["seg"].metadata["image_size"][0] == 320
    with pytest.raises(WeightsError, match=r"tasks\.seg: image_size is 330 x 240: .*of 16"):
        labeler(tmp_path, "seg", image_size=(330, 240))


def test_a_head_with_one_doubling_fewer_fills_its_frame(saved: Saved, tmp_path: Path) -> None:
    halved = {
        "use_pixel_shuffle": True, "upsample_out_channels": [8, 8, 8],
        "upsample_kernel_sizes": [3] * 3, "conv_out_channels": [8], "conv_kernel_sizes": [3],
    }  # fmt: skip
    model = saved("Sapiens2ForNormalEstimation", ["x", "y", "z"], (256, 192), head_config=halved)
    processor = json.loads((tmp_path / "preprocessor_config.json").read_text())
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor | {"do_pad": True}))
    (labels,) = labeler(tmp_path, "normal", dtype="float32").label_images([picture()[:120]])
    frame = labels.labels["normal"].frames[0]
    found = labels.labels["normal"].array[0, :, : frame.height, : frame.width]
    canvas = make_view(picture()[:120], ViewSpec(ViewKind.LETTERBOX, 256, 192)).canvas
    with torch.inference_mode():
        raw = model(normalised(canvas)).normals
    assert raw.shape[-2:] == (128, 96)
    top = (256 - frame.height) // 2
    whole = F.interpolate(raw, size=(256, 192), mode="bilinear")[0, :, top : top + frame.height]
    np.testing.assert_allclose(found, F.normalize(whole, dim=0).numpy(), atol=1e-3)
