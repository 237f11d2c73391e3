"""What is said of a job file that breaks a rule: the field, the value, and the way out."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from sapiens_batch.errors import SpecError
from sapiens_batch.models.licences import LICENCES
from sapiens_batch.spec.job import LicenceKey
from sapiens_batch.spec.loading import parse_spec


def message_of(**changes: Any) -> str:
    values = {
        "name": "job",
        "source": {"format": "webdataset", "uri": "in.tar"},
        "tasks": {"pose": {"checkpoint": "demo"}},
        "output": {"uri": "out"},
    } | changes
    with pytest.raises(SpecError) as caught:
        parse_spec(values)
    return str(caught.value)


def test_a_setting_of_another_task_is_named_without_the_rest_of_the_job() -> None:
    message = message_of(tasks={"pose": {"checkpoint": "demo", "layers": [3]}})
    assert message.splitlines()[1:] == ["  tasks.pose.layers: only `features` has it"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"tasks": {"poze": {"checkpoint": "demo"}}},
            "tasks.poze: no such task; did you mean `pose`? There are embedding, features, pose,",
        ),
        (
            {"tasks": {"pose": "demo"}},
            "tasks.pose: must be the settings of the task, such as `{checkpoint: demo}`; found "
            "'demo'",
        ),
        ({"tasks": {}}, "tasks: needs at least 1; found {}"),
        ({"source": "in.tar"}, "source: must be a mapping of `field: value`; found 'in.tar'"),
        (
            {"source": {"format": "webdataset", "uri": "a", "shuffle": True}},
            "source.shuffle: always false: samples keep their stored order",
        ),
        (
            {"source": {"format": "parqet", "uri": "a"}},
            "found 'parqet'; did you mean `parquet`?",
        ),
        (
            {"persons": {"from": "source", "detector": {"model": "movenet"}}},
            "persons.detector: has no effect without `from: detector`",
        ),
        (
            {"tasks": {"seg": {"checkpoint": "demo", "region": "persn"}}},
            "tasks.seg.region: Input should be 'image' or 'person'; found 'persn'; did you mean "
            "`person`?",
        ),
        ({"runtime": {"label_actors": 0}}, "runtime.label_actors: Input should be greater than"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_fault_says_field_value_and_way_out(changes: dict[str, Any], expected: str) -> None:
    message = message_of(**changes)
    assert expected in message
    assert "Value error" not in message


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"output": {"uri": "out", "chunk_samples": True}}, "output.chunk_samples"),
        ({"decode": {"timeout_s": False}}, "decode.timeout_s"),
        ({"decode": {"background": [True, 0, 0]}}, "decode.background"),
        ({"runtime": {"batch_views": True}}, "runtime.batch_views"),
        (
            {"tasks": {"features": {"checkpoint": "demo", "layers": [True]}}},
            "tasks.features.layers",
        ),
        ({"name": False}, "name"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_truth_value_is_neither_number_nor_text(changes: dict[str, Any], field: str) -> None:
    assert f"{field}: true, yes, on and their opposites are truth values" in message_of(**changes)


def test_an_unknown_licence_is_refused_with_those_there_are() -> None:
    message = message_of(accept_licences=["sapiens3"])
    assert "accept_licences.0" in message
    assert "'sapiens2' or 'cc-by-nc-4.0'; found 'sapiens3'; did you mean `sapiens2`?" in message
    assert set(get_args(LicenceKey)) == {licence.key for licence in LICENCES}


@pytest.mark.parametrize("options", ["key: s3cret", ["s3cret"], {"key": {1: "s3cret"}, 2: 3}])
def test_options_of_stores_are_never_shown(options: object) -> None:
    values = {
        "name": "job",
        "source": {"format": "webdataset", "uri": "a.tar", "storage_options": options},
        "tasks": {"seg": {"checkpoint": "demo"}},
        "output": {"uri": "out", "storage_options": options},
    }
    with pytest.raises(SpecError) as refused:
        parse_spec(values)
    assert "source.storage_options" in str(refused.value)
    assert "s3cret" not in str(refused.value)
