"""How far the labels of one sample are apart."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sapiens_batch.labelset import SampleLabels
from sapiens_batch.preview.measure import box_iou, matched_persons, measure_pair, paired_maps
from sapiens_batch.records import Affine, Array, ArrayField, LabelSchema, Level

POSE = LabelSchema("pose", Level.PERSON, (), None, {})
SEG = LabelSchema("seg", Level.IMAGE, (), ArrayField((4, 4), "uint8", 255, ("y", "x"), "zstd"), {})
NORMAL = LabelSchema(
    "normal", Level.IMAGE, (),
    ArrayField((3, 2, 2), "float32", np.nan, ("channel", "y", "x"), "blosc"), {},
)  # fmt: skip
POINTMAP = LabelSchema(
    "pointmap", Level.IMAGE, (),
    ArrayField((3, 2, 2), "float32", np.nan, ("channel", "y", "x"), "blosc"), {},
)  # fmt: skip


@dataclass
class Rows:
    """An array of one row."""

    values: Array
    field: ArrayField

    def row(self, shard_id: str, row: int) -> Array:
        return self.values


SAME = Affine(1, 1, 0, 0)


def sample(schema: LabelSchema, values: Array, affine: Affine = SAME) -> SampleLabels:
    """A sample with one dense label that fills its row."""
    task = schema.task
    height, width = values.shape[-2:]
    row = {
        "key": "k", "shard_id": "s", "index": 0, "height": 8, "width": 8, f"{task}_row": 0,
        f"{task}_height": height, f"{task}_width": width, f"{task}_affine": affine.as_row(),
    }  # fmt: skip
    arrays: Any = {task: Rows(values, schema.array)}  # type: ignore[arg-type]
    return SampleLabels(row, (), {task: schema}, arrays)


def posed(*people: tuple[list[float], Array, Array]) -> SampleLabels:
    persons = tuple(
        {"person": i, "bbox": np.array(box, np.float32), "keypoints": xy, "keypoint_scores": score}
        for i, (box, xy, score) in enumerate(people)
    )
    return SampleLabels({"key": "k"}, persons, {"pose": POSE}, {})


def test_keypoints_count_where_both_jobs_see_them() -> None:
    box = [0.0, 0.0, 10.0, 40.0]
    first = np.array([[0, 0], [5, 5], [9, 9], [np.nan, 0]])
    second = np.array([[3, 4], [5, 5], [0, 0], [0, 0]])
    a = posed((box, first, np.array([0.9, 0.9, 0.9, 0.9])))
    b = posed((box, second, np.array([0.9, 0.9, 0.1, 0.9])))
    found = measure_pair(a, b, min_score=0.3)
    # 5 px and 0 px; the third point is below the threshold, the fourth is missing
    assert found["keypoint_px"] == pytest.approx(2.5)
    assert found["keypoint_relative"] == pytest.approx(2.5 / 20)


def test_persons_are_matched_by_overlap_not_by_number() -> None:
    points, scores = np.zeros((1, 2)), np.ones(1)
    left, right = [0.0, 0.0, 10.0, 10.0], [50.0, 0.0, 10.0, 10.0]
    a = posed((left, points, scores), (right, points, scores))
    b = posed((right, points, scores), ([1.0, 0.0, 10.0, 10.0], points, scores))
    assert sorted(matched_persons(a, b)) == [(0, 1), (1, 0)]


def test_persons_that_hardly_overlap_are_not_matched() -> None:
    points, scores = np.zeros((1, 2)), np.ones(1)
    a = posed(([0.0, 0.0, 10.0, 10.0], points, scores))
    b = posed(([6.0, 0.0, 10.0, 10.0], points, scores))
    assert matched_persons(a, b) == []
    assert measure_pair(a, b, min_score=0.3) == {}


def test_box_overlap_is_intersection_over_union() -> None:
    first = np.array([[0, 0, 4, 4], [0, 0, 2, 2]])
    second = np.array([[2, 0, 4, 4]])
    np.testing.assert_allclose(box_iou(first, second), [[8 / 24], [0]])


def test_mask_iou_is_the_mean_over_the_classes_of_either_job() -> None:
    first = np.array([[0, 0], [1, 1]], np.uint8)
    second = np.array([[0, 0], [1, 2]], np.uint8)
    found = measure_pair(sample(SEG, first), sample(SEG, second), min_score=0)
    # class 0: 2 of 2, class 1: 1 of 2, class 2: 0 of 1
    assert found["mask_iou"] == pytest.approx((1 + 0.5 + 0) / 3)
    assert found["mask_agreement"] == pytest.approx(0.75)


def test_a_mask_on_another_frame_is_brought_to_the_first_one() -> None:
    small = np.array([[1, 2], [3, 4]], np.uint8)
    large = np.repeat(np.repeat(small, 2, axis=0), 2, axis=1)
    coarse = Affine(4.0, 4.0, 1.5, 1.5)
    fine = Affine(2.0, 2.0, 0.5, 0.5)
    maps = paired_maps(sample(SEG, large, fine), sample(SEG, small, coarse), "seg")
    assert maps is not None
    np.testing.assert_array_equal(*maps)


def test_normals_differ_by_their_angle() -> None:
    up = np.zeros((3, 2, 2), np.float32)
    up[1] = 1
    tilted = np.zeros((3, 2, 2), np.float32)
    tilted[1:] = np.sqrt(0.5)
    tilted[:, 0, 0] = np.nan
    found = measure_pair(sample(NORMAL, up), sample(NORMAL, tilted), min_score=0)
    assert found["normal_degrees"] == pytest.approx(45, abs=1e-3)


def test_depth_error_is_in_metres_and_as_a_share_of_the_depth() -> None:
    first = np.full((3, 2, 2), 2.0, np.float32)
    second = first.copy()
    second[2] = 2.5
    second[:, 1, 1] = np.nan
    found = measure_pair(sample(POINTMAP, first), sample(POINTMAP, second), min_score=0)
    assert found["depth_m"] == pytest.approx(0.5)
    assert found["depth_relative"] == pytest.approx(0.25)


def test_a_task_that_only_one_job_has_is_left_out() -> None:
    mask = np.zeros((2, 2), np.uint8)
    assert measure_pair(sample(SEG, mask), posed(), min_score=0) == {}


def test_equal_embeddings_are_at_no_distance() -> None:
    schema: Any = SimpleNamespace(task="embedding", array=None)
    vector = np.array([0.6, 0.8], np.float32)
    one, other = (
        SampleLabels({"key": "k", "embedding": value}, (), {"embedding": schema}, {})
        for value in (vector, np.array([0.8, -0.6], np.float32))
    )
    assert measure_pair(one, one, min_score=0)["embedding_distance"] == pytest.approx(0, abs=1e-6)
    assert measure_pair(one, other, min_score=0)["embedding_distance"] == pytest.approx(1)
