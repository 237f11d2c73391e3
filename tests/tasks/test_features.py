"""Feature maps of chosen layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sapiens_batch.errors import SpecError
from sapiens_batch.models.encoder import Encoding, Stage
from sapiens_batch.models.weights import resolve_checkpoint
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.tasks.base import Outputs
from sapiens_batch.tasks.features import FeaturesTask
from tests.conformance.task_contract import TaskContract
from tests.tasks.conftest import MakeViews

DEMO = resolve_checkpoint("demo")


class TestFeaturesTask(TaskContract):
    name = "features"


def test_layers_come_in_the_order_asked_for_and_patches_lie_in_the_source(
    make_views: MakeViews,
) -> None:
    task = FeaturesTask(TaskSpec(checkpoint="demo", layers=[9, 2], normalised=False), DEMO)
    assert task.stages == (Stage(9, False), Stage(2, False))
    tokens = torch.zeros(1, 201, 48)
    kept = {stage: tokens + stage.layer for stage in task.stages}
    kept[task.stages[0]][0, 9 + 12 + 1, 5] = 77  # second row, second column
    outputs = Outputs(Encoding(tokens, (16, 12), kept), None)
    labels = task.decode(outputs, make_views(task.view_spec, [(320, 480)]))
    assert labels.array.shape == (1, 2, 48, 16, 12)
    assert labels.array.dtype == np.float16
    assert labels.array[0, 0, 5, 1, 1] == 77
    assert (labels.array[0, 1] == 2).all()
    # a patch is 20 source rows high and 40 source columns wide; its centre lies in the middle
    assert labels.frames[0].to_source.as_row() == (40, 20, 19.5, 9.5)


@pytest.mark.parametrize("layers", [[19], [3, 3]])
def test_layers_that_are_not_there_or_come_twice_are_refused(layers: list[int]) -> None:
    with pytest.raises(SpecError, match=r"tasks\.features\.layers"):
        FeaturesTask(TaskSpec(checkpoint="demo", layers=layers), DEMO)


def test_a_value_beyond_float16_is_a_problem(make_views: MakeViews) -> None:
    task = FeaturesTask(TaskSpec(checkpoint="demo"), DEMO)
    tokens = torch.full((1, 201, 48), 1e6)
    outputs = Outputs(Encoding(tokens, (16, 12), {task.stages[0]: tokens}), None)
    labels = task.decode(outputs, make_views(task.view_spec, [(32, 48)]))
    assert labels.problems[0].reason == "label.non_finite"


def test_class_tokens_and_the_stem_come_with_the_layers(make_views: MakeViews) -> None:
    task = FeaturesTask(TaskSpec(checkpoint="demo", layers=[0, 5], class_tokens=True), DEMO)
    generator = torch.Generator().manual_seed(0)
    stages = {stage: torch.randn(1, 201, 48, generator=generator) for stage in task.stages}
    outputs = Outputs(Encoding(torch.zeros(1, 201, 48), (16, 12), stages), None)
    labels = task.decode(outputs, make_views(task.view_spec, [(30, 40)]))
    assert [stage.layer for stage in task.stages] == [0, 5]
    expected = torch.stack([stages[stage][0, 0] for stage in task.stages]).half().numpy()
    assert (labels.columns["features_cls"][0] == expected).all()
    assert task.schema.columns[0].shape == (2, 48)
