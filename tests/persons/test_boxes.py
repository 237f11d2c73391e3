"""Which boxes become persons, and what is said about the others."""

from __future__ import annotations

import numpy as np
import pytest

from sapiens_batch.errors import SampleError
from sapiens_batch.persons.boxes import sort_out
from sapiens_batch.records import Array
from sapiens_batch.spec.job import PersonsSpec

SIZE = (100, 200)
GOOD = [10, 20, 30, 40]
NAN, INF = float("nan"), float("inf")


def spec(**settings: object) -> PersonsSpec:
    return PersonsSpec.model_validate(settings)


@pytest.mark.parametrize(
    ("box", "reason"),
    [
        ([NAN, 5, 10, 10], "person.not_finite"),
        ([5, 5, INF, 10], "person.not_finite"),
        ([5, 5, 0, 0], "person.no_area"),
        ([5, 5, -3, 10], "person.no_area"),
        ([5, 5, 10, -3], "person.no_area"),
        ([200, 5, 10, 10], "person.outside"),
        ([5, 100, 10, 10], "person.outside"),
        ([-10, 5, 10, 10], "person.outside"),
        ([5, -10, 10, 10], "person.outside"),
        ([-100, 0, 401, 100], "person.too_large"),
        ([0, -50, 100, 201], "person.too_large"),
        ([5, 5, 7.5, 90], "person.too_small"),
    ],
)
def test_a_degenerate_box_is_refused_by_name_and_costs_its_neighbours_nothing(
    box: list[float], reason: str
) -> None:
    boxes = np.array([GOOD, box, GOOD], np.float32)
    scores = np.array([0.5, 0.9, 0.25], np.float32)
    persons = sort_out(boxes, scores, SIZE, spec(min_size_px=8))
    np.testing.assert_array_equal(persons.boxes, np.array([GOOD, GOOD], np.float32))
    np.testing.assert_array_equal(persons.scores, np.array([0.5, 0.25], np.float32))
    assert persons.numbers == (0, 2)
    (refused,) = persons.refused
    assert (refused.number, refused.problem.reason) == (1, reason)
    assert refused.score == np.float32(0.9)
    np.testing.assert_array_equal(refused.box, np.array(box, np.float32))
    assert "box 1" in refused.problem.message
    assert "200 x 100 px" in refused.problem.message


@pytest.mark.parametrize(
    "box", [[-5.5, -5, 230, 180], [-100, -50, 400, 200], [199.5, 99.5, 10, 10], [3, 3, 0.25, 0.25]]
)
def test_boxes_may_reach_out_of_the_image_and_be_small(box: list[float]) -> None:
    persons = sort_out(np.array([box]), None, SIZE, spec())
    np.testing.assert_array_equal(persons.boxes, np.array([box], np.float32))
    assert np.isnan(persons.scores).all()
    assert persons.refused == ()


def test_boxes_in_fractions_of_the_image_are_told_apart() -> None:
    boxes = np.array([[0.1, 0.2, 0.5, 0.7], [0, 0, 1, 1.2]], np.float32)
    persons = sort_out(boxes, None, SIZE, spec())
    assert len(persons.boxes) == 0
    assert {one.problem.reason for one in persons.refused} == {"person.normalised"}
    assert "give pixels" in persons.refused[0].problem.message


def test_a_tiny_box_beside_a_large_one_is_no_fraction() -> None:
    boxes = np.array([[0.1, 0.2, 0.5, 0.7], GOOD], np.float32)
    assert len(sort_out(boxes, None, SIZE, spec()).boxes) == 2


def test_on_an_image_of_a_pixel_or_two_nothing_is_a_fraction() -> None:
    assert len(sort_out(np.array([[0, 0, 1, 1]]), None, (1, 1), spec()).boxes) == 1


def test_of_too_many_boxes_the_best_stay_in_their_order() -> None:
    boxes = np.array([[x, 0, 10, 10] for x in range(5)], np.float32)
    scores = np.array([0.2, NAN, 0.9, 0.9, 0.5], np.float32)
    persons = sort_out(boxes, scores, SIZE, spec(max_persons=3))
    np.testing.assert_array_equal(persons.boxes[:, 0], [2, 3, 4])
    assert persons.numbers == (2, 3, 4)
    assert persons.truncated


def test_without_scores_the_first_boxes_stay() -> None:
    boxes = np.array([[x, 0, 10, 10] for x in range(5)], np.float32)
    persons = sort_out(boxes, None, SIZE, spec(max_persons=2))
    np.testing.assert_array_equal(persons.boxes[:, 0], [0, 1])
    assert persons.truncated


def test_refused_boxes_do_not_count_as_too_many() -> None:
    boxes = np.array([[0, 0, 0, 0], [1, 0, 10, 10]], np.float32)
    persons = sort_out(boxes, None, SIZE, spec(max_persons=1))
    assert len(persons.boxes) == 1
    assert not persons.truncated


@pytest.mark.parametrize(
    ("boxes", "scores"), [(np.zeros((2, 5)), None), (np.zeros(4), None), (np.ones((2, 4)), [1.0])]
)
def test_boxes_of_another_shape_make_no_sense(boxes: Array, scores: list[float] | None) -> None:
    with pytest.raises(SampleError) as caught:
        sort_out(boxes, None if scores is None else np.array(scores), SIZE, spec())
    assert caught.value.reason == "person.malformed_boxes"


@pytest.mark.parametrize("boxes", [np.empty((0, 4)), np.empty(0), np.zeros((2, 4))])
def test_nobody_is_invented_unless_the_job_says_so(boxes: Array) -> None:
    kept = sort_out(boxes, None, SIZE, spec())
    assert kept.boxes.shape == (0, 4)
    assert not kept.invented
    invented = sort_out(boxes, None, SIZE, spec(on_empty="whole_image"))
    np.testing.assert_array_equal(invented.boxes, [[0, 0, 200, 100]])
    assert invented.invented
    assert invented.numbers == (len(boxes.reshape(-1, 4)),)
    assert len(invented.refused) == len(boxes.reshape(-1, 4))
