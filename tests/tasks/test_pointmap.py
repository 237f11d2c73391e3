"""Metric points and the focal length from raw maps and scales."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sapiens_batch.errors import WeightsError
from sapiens_batch.models.encoder import Encoding
from sapiens_batch.models.heads import HeadOutput
from sapiens_batch.models.weights import resolve_checkpoint
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.tasks.base import Outputs
from sapiens_batch.tasks.pointmap import PointmapTask
from tests.conformance.task_contract import TaskContract
from tests.tasks.conftest import MakeViews

DEMO = resolve_checkpoint("demo", head="pointmap")
ENCODING = Encoding(torch.zeros(1, 201, 48), (16, 12))


class TestPointmapTask(TaskContract):
    name = "pointmap"


def test_points_are_divided_by_the_scale_and_the_focal_length_is_in_source_pixels(
    make_views: MakeViews,
) -> None:
    task = PointmapTask(TaskSpec(checkpoint="demo"), DEMO)
    maps = torch.full((1, 3, 256, 192), 3.0)
    output = HeadOutput(maps, torch.tensor([[1.5]]))
    labels = task.decode(Outputs(ENCODING, output), make_views(task.view_spec, [(512, 384)]))
    assert (labels.array[0] == 2.0).all()
    assert labels.columns["pointmap_scale"][0] == 1.5
    # 192 px canonical focal / 1.5, and one view pixel is two source pixels
    assert labels.columns["pointmap_focal"][0] == 256


def test_a_point_beyond_float16_is_a_problem_and_not_an_infinite_label(
    make_views: MakeViews,
) -> None:
    maps = torch.full((1, 3, 256, 192), 3000.0)
    outputs = Outputs(ENCODING, HeadOutput(maps, torch.tensor([[0.02]])))
    for dtype, reasons in (("float16", ["label.non_finite"]), ("float32", [])):
        task = PointmapTask(TaskSpec(checkpoint="demo", dtype=dtype), DEMO)
        labels = task.decode(outputs, make_views(task.view_spec, [(512, 384)]))
        assert [problem.reason for problem in labels.problems if problem] == reasons
        assert not np.isinf(labels.array).any()


@pytest.mark.parametrize("scale", [-0.3, 0.0, 1e-6, 1e6])
def test_a_scale_that_no_camera_has_is_a_problem(scale: float, make_views: MakeViews) -> None:
    task = PointmapTask(TaskSpec(checkpoint="demo", dtype="float32"), DEMO)
    maps = torch.full((2, 3, 256, 192), 3.0)
    output = HeadOutput(maps, torch.tensor([[scale], [1.0]]))
    labels = task.decode(
        Outputs(ENCODING, output), make_views(task.view_spec, [(512, 384), (512, 384)])
    )
    assert labels.problems[0].reason == "label.scale"
    assert labels.problems[1] is None
    assert np.isnan(labels.array[0]).all()
    assert np.isnan(labels.columns["pointmap_focal"]).tolist() == [True, False]


def test_weights_without_the_scale_branch_are_refused() -> None:
    head = replace(DEMO.config.head, scale_hidden=())
    checkpoint = replace(DEMO, config=replace(DEMO.config, head=head))
    with pytest.raises(WeightsError, match="scale branch"):
        PointmapTask(TaskSpec(checkpoint="demo"), checkpoint)
