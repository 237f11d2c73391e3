"""The SQL tables: derived columns, and what a condition may not do."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from sapiens_batch.curate.select import matching
from sapiens_batch.curate.tables import DERIVED, samples_view
from sapiens_batch.errors import SpecError
from sapiens_batch.labelset import LabelSet, open_labels
from sapiens_batch.records import Level
from sapiens_batch.storage import Store, open_store
from tests.labelset.built_job import write_job
from tests.search.embedded_job import Row, commit_shard, start_job


def memory() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}")


@pytest.fixture(scope="module")
def labels() -> LabelSet:
    """Foreground 40 % and 5 %; nobody, one and two persons; one sample lost."""
    job = memory()
    manifest = start_job(job, 2)
    rows = [
        Row([1, 0], persons=[(0.9, 0.7, 0.0)]),
        Row([1, 0], persons=[(0.5, 0.3, 0.9), (0.2, 0.2, 0.9)]),
        Row(None),
        Row([0, 1], persons=[], areas=(95, 5, 0), size=(200, 100)),
    ]
    commit_shard(job, 0, rows, 2)
    return LabelSet(manifest)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("status = 'ok'", [0, 1, 3]),
        ("num_persons >= 1", [0, 1]),
        ("foreground_share > 0.05 + 1e-6", [0, 1]),
        ("foreground_share BETWEEN 0.04 AND 0.06", [3]),
        ("class_share['Torso'] = 0.3", [0, 1]),
        ("class_share['Hair'] < 0.06", [3]),
        ("body_score > 0.75", [0]),
        ("body_score BETWEEN 0.29 AND 0.31", [1]),
        ("worst_body_score < 0.21", [1]),
        ("largest_person_share > 0.15", [1]),
        ("body_score IS NULL", [2, 3]),
        ("embedding[2] > 0.9", [3]),
        ("num_persons = (SELECT count(*) FROM persons)", []),
    ],
)
def test_a_condition_takes_the_rows_that_it_says(
    labels: LabelSet, where: str, expected: list[int]
) -> None:
    assert matching(labels, where)["index"].to_pylist() == expected


def test_a_body_score_is_of_the_body_keypoints_only(labels: LabelSet) -> None:
    view = samples_view(labels, "body_score > 0")
    assert "list_select(keypoint_scores, [1, 2])" in view


def test_derived_columns_that_are_not_named_cost_nothing(labels: LabelSet) -> None:
    assert samples_view(labels, "num_persons > 1") == (
        "CREATE TEMP VIEW samples AS SELECT i.* FROM images i"
    )


def test_every_derived_column_says_what_it_means() -> None:
    assert all(one.meaning for one in DERIVED)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("nope > 1", "names no column 'nope'"),
        ("status =", "is no SQL condition: it ends too early"),
        ("", "is no SQL condition"),
        ("body_scor > 1", r"did you mean `body_score`\? There are key, .*num_persons.*body_score"),
        ("status = ok", "text stands in 'single quotes'"),
        ("status = 'ok'); DROP VIEW samples; --", "more than one condition"),
        ("key IN (SELECT content FROM read_text('/etc/passwd'))", "disabled"),
    ],
)
def test_a_condition_that_is_none_is_refused(labels: LabelSet, where: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        matching(labels, where)
    assert "LINE 1" not in str(caught.value)  # the statement around the condition is not shown
    assert "ORDER BY" not in str(caught.value)


def test_a_derived_column_without_its_labels_is_refused() -> None:
    store = memory()
    write_job(store)
    with pytest.raises(
        SpecError, match=r"foreground_share .* needs `seg` of whole images.* not have"
    ):
        matching(open_labels(store.uri), "foreground_share > 0.1")


def test_a_job_without_commits_matches_nothing() -> None:
    labels = LabelSet(start_job(memory(), 2))
    assert matching(labels, "body_score > 0 AND status = 'ok'").num_rows == 0


def test_class_areas_of_persons_are_none_of_the_image() -> None:
    labels = LabelSet(start_job(memory(), 2))
    seg = replace(labels.schemas["seg"], level=Level.PERSON)
    labels.schemas = {**labels.schemas, "seg": seg}
    with pytest.raises(
        SpecError, match=r"`seg` of whole images \(without `region: person`\).* seg of persons"
    ):
        samples_view(labels, "foreground_share > 0.1")
