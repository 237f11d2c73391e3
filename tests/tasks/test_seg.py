"""Masks and class areas from logits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sapiens_batch.errors import SpecError, WeightsError
from sapiens_batch.images.frames import to_source
from sapiens_batch.models.encoder import Encoding
from sapiens_batch.models.heads import HeadOutput
from sapiens_batch.models.weights import resolve_checkpoint
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.tasks.base import Outputs
from sapiens_batch.tasks.seg import SegTask
from tests.conformance.task_contract import TaskContract
from tests.tasks.conftest import MakeViews

DEMO = resolve_checkpoint("demo", head="seg")


class TestSegTask(TaskContract):
    name = "seg"


def test_a_stretched_half_becomes_half_of_the_undistorted_frame(make_views: MakeViews) -> None:
    task = SegTask(TaskSpec(checkpoint="demo"), DEMO)
    maps = torch.zeros(1, 29, 256, 192)
    maps[0, 4, :128] = 1  # hair above
    maps[0, 22, 128:] = 1  # torso below
    outputs = Outputs(Encoding(torch.zeros(1, 201, 48), (16, 12)), HeadOutput(maps))
    labels = task.decode(outputs, make_views(task.view_spec, [(300, 450)]))
    frame = labels.frames[0]
    assert (frame.height, frame.width) == (128, 192)
    assert frame.to_source.scale_x == 450 / 192
    assert (labels.array[0, :64, :192] == 4).all()
    assert (labels.array[0, 64:128, :192] == 22).all()
    assert labels.columns["seg_class_pixels"][0, [4, 22]].tolist() == [64 * 192, 64 * 192]


def test_metadata_names_the_classes_and_their_colours() -> None:
    metadata = SegTask(TaskSpec(checkpoint="demo"), DEMO).schema.metadata
    assert metadata["classes"][2] == "Eyeglass"
    assert metadata["palette_rgb"][1] == [255, 218, 0]


def test_weights_of_another_task_are_refused_by_name() -> None:
    with pytest.raises(WeightsError, match="demo is a normal model"):
        SegTask(TaskSpec(checkpoint="demo"), resolve_checkpoint("demo", head="normal"))


def test_more_classes_than_a_byte_holds_are_refused() -> None:
    head = replace(DEMO.config.head, out_channels=255)
    checkpoint = replace(DEMO, config=replace(DEMO.config, head=head))
    with pytest.raises(WeightsError, match="255 classes"):
        SegTask(TaskSpec(checkpoint="demo"), checkpoint)


def test_mirrored_logits_are_flipped_back_and_left_and_right_swapped() -> None:
    task = SegTask(TaskSpec(checkpoint="demo", flip_test=True), DEMO)
    mirrored = torch.zeros(1, 29, 256, 192)
    mirrored[0, 6, 10, 4] = 1  # the left hand of the mirrored person is the right one
    mirrored[0, 22, 20, 5] = 1  # a torso has no side
    merged = task.merge_mirrored(HeadOutput(torch.zeros_like(mirrored)), HeadOutput(mirrored))
    assert merged.maps[0, 15, 10, 187] == 0.5
    assert merged.maps[0, 22, 20, 186] == 0.5
    assert merged.maps.sum() == 1


def test_a_flip_test_is_refused_where_left_and_right_are_not_known() -> None:
    head = replace(DEMO.config.head, out_channels=20)
    checkpoint = replace(DEMO, config=replace(DEMO.config, head=head))
    with pytest.raises(SpecError, match=r"tasks\.seg\.flip_test: true.* 20 classes"):
        SegTask(TaskSpec(checkpoint="demo", flip_test=True), checkpoint)


def test_first_generation_masks_carry_the_map_to_the_second() -> None:
    head = replace(DEMO.config.head, out_channels=28)
    checkpoint = replace(DEMO, config=replace(DEMO.config, head=head))
    metadata = SegTask(TaskSpec(checkpoint="demo"), checkpoint).schema.metadata
    # Eyeglass came in at 2, so Face_Neck moved from 2 to 3
    assert metadata["classes"][2] == "Face_Neck"
    assert metadata["map_to_v2"]["2"] == 3


def test_a_mask_on_the_grid_of_the_view_keeps_every_row_of_a_landscape_photo(
    make_views: MakeViews,
) -> None:
    task = SegTask(TaskSpec(checkpoint="demo", frame="view"), DEMO)
    stripes = torch.zeros(1, 29, 256, 192)
    stripes[0, 4, ::2], stripes[0, 22, 1::2] = 1, 1
    outputs = Outputs(Encoding(torch.zeros(1, 201, 48), (16, 12)), HeadOutput(stripes))
    views = make_views(task.view_spec, [(300, 900)])
    labels = task.decode(outputs, views)
    frame = labels.frames[0]
    assert (frame.height, frame.width) == (256, 192)
    assert frame.to_source == views.to_source[0]
    assert (labels.array[0, ::2] == 4).all()
    assert (labels.array[0, 1::2] == 22).all()
    source = to_source(
        labels.array[0], frame.to_source, (300, 900), interpolation="nearest", fill_value=255
    )
    # a row of the view is 300 / 256 rows of the source
    rows = ((np.arange(300) + 0.5) * 256 / 300 - 0.5).round().astype(int)
    assert (source == np.where(rows % 2, 22, 4)[:, None]).mean() > 0.99
    assert task.schema.metadata["frame"] == "view"


def test_classes_that_nobody_gave_colours_get_colours_that_differ() -> None:
    head = replace(DEMO.config.head, out_channels=60)
    checkpoint = replace(DEMO, config=replace(DEMO.config, head=head))
    metadata = SegTask(TaskSpec(checkpoint="demo"), checkpoint).schema.metadata
    assert metadata["classes"][:2] == ["class_0", "class_1"]
    assert len({tuple(colour) for colour in metadata["palette_rgb"]}) == 60
    assert all(0 <= value <= 255 for colour in metadata["palette_rgb"] for value in colour)
