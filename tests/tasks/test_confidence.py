"""Columns that say how sure a model is, which a job asks for."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from sapiens_batch.errors import SpecError
from sapiens_batch.models.encoder import Encoding
from sapiens_batch.models.heads import HeadOutput
from sapiens_batch.models.weights import resolve_checkpoint
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.tasks import TASKS
from sapiens_batch.tasks.base import Outputs, Task
from sapiens_batch.tasks.confidence import angles, class_confidence, undecided
from tests.conformance.task_contract import TaskContract
from tests.tasks.conftest import MakeViews

ENCODING = Encoding(torch.zeros(1, 201, 48), (16, 12))
COLUMNS = {"confidence": "columns"}
OF_TWO_VIEWS = {"confidence": "columns", "flip_test": True}


class TestSegWithConfidence(TaskContract):
    name = "seg"
    settings = COLUMNS


class TestMattingWithConfidence(TaskContract):
    name = "matting"
    settings = COLUMNS


class TestPoseWithConfidence(TaskContract):
    name = "pose"
    settings = COLUMNS
    missing_is_a_problem = False


class TestNormalWithConfidence(TaskContract):
    name = "normal"
    settings = OF_TWO_VIEWS


class TestPointmapWithConfidence(TaskContract):
    name = "pointmap"
    settings = OF_TWO_VIEWS


class TestDepthWithConfidence(TaskContract):
    name = "depth"
    settings = OF_TWO_VIEWS


def make(name: str, **settings: object) -> Task:
    checkpoint = resolve_checkpoint("demo", head=TASKS[name].head)
    return TASKS[name](TaskSpec(checkpoint="demo", **settings), checkpoint)


def test_confidence_of_a_mask_is_that_of_its_winning_probabilities() -> None:
    probability = torch.tensor([[0.9, 0.1, 0.0], [0.4, 0.35, 0.25], [0.2, 0.8, 0.0]])
    logits = probability.clamp(min=1e-12).log().T.repeat_interleave(1000, 1)  # (3, 3000)
    # every fourth pixel of one row, in blocks of a thousand
    found = class_confidence(logits[:, None, :])
    torch.testing.assert_close(found.of_class[:2], torch.tensor([0.65, 0.8]))
    assert found.of_class[2].isnan()
    torch.testing.assert_close(found.low_of_class[:2], torch.tensor([0.4, 0.8]))
    torch.testing.assert_close(found.overall, torch.tensor(0.7))
    torch.testing.assert_close(found.unsure, torch.tensor(1 / 3))
    entropies = [-sum(p * math.log(p) for p in row if p) for row in probability.tolist()]
    torch.testing.assert_close(found.entropy, torch.tensor(sum(entropies) / 3))


def test_the_sampled_confidence_is_that_of_all_pixels() -> None:
    smooth = torch.nn.functional.interpolate(
        torch.randn(1, 29, 12, 9, generator=torch.Generator().manual_seed(0)) * 3,
        size=(1024, 768), mode="bicubic",
    )[0]  # fmt: skip
    found = class_confidence(smooth)
    winning = smooth.softmax(0).amax(0)
    assert abs(float(found.overall - winning.mean())) < 1e-3
    assert abs(float(found.unsure - (winning < 0.5).float().mean())) < 5e-3
    classes = smooth.argmax(0)
    for number in range(29):
        where = winning[classes == number]
        if len(where) > 10_000:
            assert abs(float(found.of_class[number] - where.mean())) < 5e-3
            assert abs(float(found.low_of_class[number] - where.quantile(0.1))) < 0.02


def test_alpha_is_undecided_between_background_and_foreground() -> None:
    alpha = torch.zeros(8, 8)
    alpha[:, 4:] = torch.tensor([0.5, 0.5, 0.5, 1.0])
    assert float(undecided(alpha)) == 0.5


def test_angles_and_distances_are_in_their_units(make_views: MakeViews) -> None:
    some = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    other = torch.tensor([2.0, 2.0, 0.0]).view(1, 3, 1, 1)
    assert float(angles(some, other)) == pytest.approx(45)
    assert float(angles(some, -some)) == pytest.approx(180)
    task = make("pointmap", **OF_TWO_VIEWS)
    maps = torch.ones(1, 3, 256, 192)
    mirrored = maps * torch.tensor([-1.0, 1.0, 1.0]).view(1, 3, 1, 1)
    apart = task.disagreement(
        HeadOutput(maps, torch.tensor([[0.5]])), HeadOutput(mirrored, torch.tensor([[1.0]]))
    )
    labels = task.decode(
        Outputs(ENCODING, HeadOutput(maps, torch.tensor([[0.5]])), apart),
        make_views(task.view_spec, [(200, 300)]),
    )
    assert labels.columns["pointmap_disagreement"][0] == pytest.approx(math.sqrt(3))


def test_padding_does_not_count_as_disagreement(make_views: MakeViews) -> None:
    task = make("normal", **OF_TWO_VIEWS)
    views = make_views(task.view_spec, [(200, 400)])  # 96 of 256 rows show the image
    apart = torch.full((1, 64, 48), 90.0)
    part = views.content[0]
    apart[:, part.top // 4 : (part.top + part.height) // 4] = 3.0
    outputs = Outputs(ENCODING, HeadOutput(torch.ones(1, 3, 256, 192)), apart)
    labels = task.decode(outputs, views)
    assert labels.columns["normal_disagreement"].tolist() == [3.0]


def test_keypoints_whose_fit_leaves_the_crop_are_counted(make_views: MakeViews) -> None:
    task = make("pose", **COLUMNS)
    maps = torch.full((1, 308, 64, 48), -1.0)
    maps[0, 0, 30, 20] = 1.0  # inside
    maps[0, 1, 0, :2] = torch.tensor([1.0, 0.9999])  # a slope that goes on beyond the corner
    labels = task.decode(
        Outputs(ENCODING, HeadOutput(maps)), make_views(task.view_spec, [(200, 300)])
    )
    outside = labels.columns["keypoint_outside"][0]
    assert labels.columns["num_keypoints_outside"][0] == outside.sum()
    assert not outside[0]
    assert not outside[2:].any()  # missing keypoints are nowhere
    xy = labels.columns["keypoints"][0, 1]
    assert np.isfinite(xy).all()


def test_confidence_that_cannot_be_had_is_refused() -> None:
    with pytest.raises(SpecError, match=r"confidence: columns.*set flip_test: true too"):
        make("normal", **COLUMNS)
    with pytest.raises(SpecError, match=r"but embedding has none"):
        make("embedding", **COLUMNS)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_without_being_asked_for_there_are_no_columns_of_confidence(name: str) -> None:
    names = [column.name for column in make(name).columns]
    assert not [one for one in names if "confidence" in one or "disagree" in one or "outs" in one]
