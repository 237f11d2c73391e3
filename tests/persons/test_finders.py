"""Boxes of the source, and the whole image as one."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from sapiens_batch.persons import make_person_finder
from sapiens_batch.persons.base import Persons
from sapiens_batch.records import Array, Problem
from sapiens_batch.spec.job import PersonsSpec
from tests.persons.images import image_of_size, sample

IMAGE = image_of_size(100, 200)


def found(spec: PersonsSpec, boxes: Array | None, scores: Array | None = None) -> Persons:
    (persons,) = make_person_finder(spec).find([sample(boxes, scores)], [IMAGE])
    assert isinstance(persons, Persons)
    return persons


def test_given_boxes_are_kept_in_order_with_unknown_scores() -> None:
    boxes = np.array([[10, 20, 30, 40], [-5.5, -5, 230, 180]], np.float32)
    persons = found(PersonsSpec(), boxes)
    np.testing.assert_array_equal(persons.boxes, boxes)
    assert persons.boxes.dtype == persons.scores.dtype == np.float32
    assert np.isnan(persons.scores).all()
    assert persons.refused == ()
    assert not persons.truncated


@pytest.mark.parametrize("boxes", [None, np.empty((0, 4), np.float32), np.empty(0, np.float32)])
def test_no_boxes_mean_nobody(boxes: Array | None) -> None:
    persons = found(PersonsSpec(), boxes)
    assert persons.boxes.shape == (0, 4)
    assert persons.scores.shape == (0,)


def test_malformed_boxes_cost_their_own_image_only() -> None:
    boxes = np.array([[10, 20, 30, 40]], np.float32)
    finder = make_person_finder(PersonsSpec())
    first, second = finder.find([sample(np.zeros((2, 5))), sample(boxes)], [IMAGE, IMAGE])
    assert isinstance(first, Problem)
    assert first.reason == "person.malformed_boxes"
    assert isinstance(second, Persons)
    assert len(second.boxes) == 1


def test_the_whole_image_is_one_person_where_the_job_says_so() -> None:
    spec = PersonsSpec.model_validate({"from": "whole_image"})
    persons = found(spec, np.array([[1, 2, 3, 4]], np.float32))
    np.testing.assert_array_equal(persons.boxes, [[0, 0, 200, 100]])
    assert np.isnan(persons.scores).all()
    assert not persons.invented


@pytest.mark.parametrize(
    ("boxes", "known"),
    [
        (np.array([[1, 2, 30, 40]]), True),
        (None, True),
        (np.array([[1, 2, 0, 40]]), False),
        (np.array([[1, 2, np.nan, 40]]), False),
    ],
)
def test_sound_given_boxes_are_known_before_decoding(boxes: Array | None, known: bool) -> None:
    finder = make_person_finder(PersonsSpec())
    assert (finder.boxes_before_decoding(sample(boxes)) is not None) is known


@pytest.mark.parametrize("origin", ["source", "whole_image", "detector"])
def test_finders_travel_to_workers(origin: str) -> None:
    finder = make_person_finder(PersonsSpec.model_validate({"from": origin, "max_persons": 7}))
    assert pickle.loads(pickle.dumps(finder)).spec.max_persons == 7
