"""What every label task must keep; each task's test module subclasses `TaskContract`."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from sapiens_batch.labels import join_labels
from sapiens_batch.models.encoder import Encoding
from sapiens_batch.models.heads import HeadOutput
from sapiens_batch.models.weights import resolve_checkpoint
from sapiens_batch.records import TaskName
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.tasks import TASKS
from sapiens_batch.tasks.base import Outputs, Task
from tests.tasks.conftest import MakeViews

SIZES = [(300, 400), (640, 200), (90, 95)]


class TaskContract:
    """Set `name`, and `missing_is_a_problem` to False where bad outputs only give NaN."""

    name: TaskName
    missing_is_a_problem = True

    @pytest.fixture
    def task(self) -> Task:
        checkpoint = resolve_checkpoint("demo", head=TASKS[self.name].head)
        return TASKS[self.name](TaskSpec(checkpoint="demo"), checkpoint)

    def outputs(self, task: Task, count: int) -> Outputs:
        """Random outputs of the right shape; heads may be small, decoding does not mind."""
        generator = torch.Generator().manual_seed(1)
        tokens = torch.randn((count, 9 + 16 * 12, 48), generator=generator)
        encoding = Encoding(tokens, (16, 12), dict.fromkeys(task.stages, tokens))
        head = task.checkpoint.config.head
        if task.head is None or head is None:
            return Outputs(encoding, None)
        height, width = task.checkpoint.config.image_size
        size = (height // 4, width // 4) if task.name == "pose" else (height, width)
        maps = torch.randn((count, head.out_channels, *size), generator=generator)
        scale = torch.full((count, 1), 2.0) if head.scale_hidden else None
        return Outputs(encoding, HeadOutput(maps, scale))

    def select(self, outputs: Outputs, index: int) -> Outputs:
        encoding = outputs.encoding.select(index, index + 1)
        if outputs.head is None:
            return Outputs(encoding, None)
        scale = outputs.head.scale
        part = HeadOutput(
            outputs.head.maps[index : index + 1],
            None if scale is None else scale[index : index + 1],
        )
        return Outputs(encoding, part)

    def spoil(self, outputs: Outputs, index: int) -> Outputs:
        tokens = outputs.encoding.tokens.clone()
        tokens[index] = torch.nan
        stages = dict.fromkeys(outputs.encoding.stages, tokens)
        encoding = replace(outputs.encoding, tokens=tokens, stages=stages)
        if outputs.head is None:
            return Outputs(encoding, None)
        maps = outputs.head.maps.clone()
        maps[index, :, maps.shape[2] // 2, maps.shape[3] // 2] = torch.inf
        return Outputs(encoding, replace(outputs.head, maps=maps))

    def test_labels_have_the_shapes_and_types_of_the_schema(
        self, task: Task, make_views: MakeViews
    ) -> None:
        labels = task.decode(self.outputs(task, 3), make_views(task.view_spec, SIZES))
        assert list(labels.columns) == [field.name for field in task.schema.columns]
        for field in task.schema.columns:
            column = labels.columns[field.name]
            assert column.shape == (3, *field.shape)
            assert column.dtype == field.dtype
        assert labels.problems == (None, None, None)
        if task.schema.array is None:
            assert labels.array is None
            assert labels.frames == ()
        else:
            assert labels.array.shape == (3, *task.schema.array.row_shape)
            assert labels.array.dtype == task.schema.array.dtype
            assert len(labels.frames) == 3

    def test_a_label_is_the_same_alone_and_among_others(
        self, task: Task, make_views: MakeViews
    ) -> None:
        views = make_views(task.view_spec, SIZES)
        outputs = self.outputs(task, 3)
        together = task.decode(outputs, views)
        for index in range(3):
            alone = task.decode(self.select(outputs, index), views.select(index, index + 1))
            for name, column in alone.columns.items():
                np.testing.assert_array_equal(column[0], together.columns[name][index])
            if alone.array is not None:
                np.testing.assert_array_equal(alone.array[0], together.array[index])

    def test_outside_the_frame_there_is_only_fill_and_inside_none(
        self, task: Task, make_views: MakeViews
    ) -> None:
        field = task.schema.array
        if field is None:
            pytest.skip("the task has no array")
        labels = task.decode(self.outputs(task, 3), make_views(task.view_spec, SIZES))
        for row, frame in zip(labels.array, labels.frames, strict=True):
            filled = np.isnan(row) if np.isnan(field.fill_value) else row == field.fill_value
            assert not filled[..., : frame.height, : frame.width].any()
            assert filled[..., frame.height :, :].all()
            assert filled[..., frame.width :].all()

    def test_an_output_that_is_not_finite_spoils_its_own_row_alone(
        self, task: Task, make_views: MakeViews
    ) -> None:
        views = make_views(task.view_spec, SIZES)
        outputs = self.outputs(task, 3)
        clean, spoiled = task.decode(outputs, views), task.decode(self.spoil(outputs, 1), views)
        for index in (0, 2):
            for name, column in spoiled.columns.items():
                np.testing.assert_array_equal(column[index], clean.columns[name][index])
            assert spoiled.problems[index] is None
        if self.missing_is_a_problem:
            assert spoiled.problems[1].reason == "label.non_finite"
        for column in spoiled.columns.values():
            assert not np.isinf(column).any()

    def test_no_batches_join_to_labels_of_zero_rows(self, task: Task) -> None:
        labels = join_labels(task.schema, [])
        for field in task.schema.columns:
            assert labels.columns[field.name].shape == (0, *field.shape)
            assert labels.columns[field.name].dtype == field.dtype
        if task.schema.array is not None:
            assert labels.array.shape == (0, *task.schema.array.row_shape)
        assert labels.problems == ()

    def test_metadata_is_json_and_says_that_this_is_a_demo(self, task: Task) -> None:
        metadata = json.loads(json.dumps(dict(task.schema.metadata)))
        assert metadata["demo"] is True
        assert metadata["warning"] == "random weights, labels are meaningless"
        assert metadata["weights_sha256"] == task.checkpoint.weights_sha256

    def test_a_task_travels_between_processes(self, task: Task) -> None:
        # as text, because a fill value that is NaN equals nothing
        assert repr(pickle.loads(pickle.dumps(task)).schema) == repr(task.schema)
