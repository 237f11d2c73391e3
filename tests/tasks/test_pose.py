"""Keypoints from heatmaps, in source pixels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sapiens_batch.errors import SpecError
from sapiens_batch.models.encoder import Encoding
from sapiens_batch.models.heads import HeadOutput
from sapiens_batch.models.weights import resolve_checkpoint
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.tasks.base import Outputs
from sapiens_batch.tasks.pose import PoseTask
from tests.conformance.task_contract import TaskContract
from tests.tasks.conftest import MakeViews

DEMO = resolve_checkpoint("demo", head="pose")
ENCODING = Encoding(torch.zeros(1, 201, 48), (16, 12))


class TestPoseTask(TaskContract):
    name = "pose"
    missing_is_a_problem = False


def gaussian(x: float, y: float) -> torch.Tensor:
    """A heatmap of 64 x 48 with a peak of 0.8 at (x, y)."""
    rows, columns = torch.arange(64.0)[:, None], torch.arange(48.0)
    return 0.8 * torch.exp(-((columns - x) ** 2 + (rows - y) ** 2) / 8)


def test_a_peak_between_pixels_is_found_and_mapped_to_the_source(make_views: MakeViews) -> None:
    task = PoseTask(TaskSpec(checkpoint="demo"), DEMO)
    maps = gaussian(20.3, 30.6).expand(1, 308, -1, -1)
    views = make_views(task.view_spec, [(400, 300)])
    labels = task.decode(Outputs(ENCODING, HeadOutput(maps)), views)
    # the box (5, 7, 150, 200) has the crop's aspect: 1.25 times it spans 187.5 x 250 px
    x = 80 - 93.75 + 187.5 * 20.3 / 47
    y = 107 - 125 + 250 * 30.6 / 63
    np.testing.assert_allclose(labels.columns["keypoints"][0, 0], [x, y], atol=0.05)


def test_keypoints_without_a_positive_peak_are_missing_and_keep_their_score(
    make_views: MakeViews,
) -> None:
    task = PoseTask(TaskSpec(checkpoint="demo"), DEMO)
    maps = gaussian(20, 30).repeat(1, 308, 1, 1)
    maps[0, 1] = -0.25
    maps[0, 2] = 0
    maps[0, 3, 5, 5] = torch.nan
    labels = task.decode(
        Outputs(ENCODING, HeadOutput(maps)), make_views(task.view_spec, [(400, 300)])
    )
    missing = np.isnan(labels.columns["keypoints"][0]).all(-1)
    assert missing[:5].tolist() == [False, True, True, True, False]
    assert labels.columns["keypoint_scores"][0, 1:4].tolist() == [-0.25, 0, 0]


def test_mirrored_heatmaps_are_flipped_back_and_left_and_right_swapped() -> None:
    task = PoseTask(TaskSpec(checkpoint="demo", flip_test=True), DEMO)
    plain = torch.zeros(1, 308, 64, 48)
    mirrored = torch.zeros(1, 308, 64, 48)
    mirrored[0, 41, 10, 4] = 1  # the right wrist of the mirrored person is the left one
    merged = task.merge_mirrored(HeadOutput(plain), HeadOutput(mirrored))
    assert merged.maps[0, 62, 10, 43] == 0.5
    assert merged.maps.sum() == 0.5


def test_a_flip_test_is_refused_where_left_and_right_are_not_known() -> None:
    head = replace(DEMO.config.head, out_channels=21)
    checkpoint = replace(DEMO, config=replace(DEMO.config, head=head))
    with pytest.raises(SpecError, match="21 keypoints"):
        PoseTask(TaskSpec(checkpoint="demo", flip_test=True), checkpoint)


def test_metadata_names_the_keypoints() -> None:
    metadata = PoseTask(TaskSpec(checkpoint="demo"), DEMO).schema.metadata
    assert metadata["keypoints"][41] == "right_wrist"
    assert metadata["keypoints"][62] == "left_wrist"
    assert [41, 62] in [list(pair) for pair in metadata["flip_pairs"]]
    assert len(metadata["skeleton"]) == 65
