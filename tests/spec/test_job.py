"""The job file: what is accepted, how faults are told, and what decides the digest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sapiens_batch.errors import SpecError
from sapiens_batch.spec.digest import differences, digest
from sapiens_batch.spec.loading import load_spec, parse_spec

REPO = Path(__file__).resolve().parents[2]


def values(**changes: Any) -> dict[str, Any]:
    return {
        "name": "job",
        "source": {"format": "webdataset", "uri": "in.tar"},
        "tasks": {"pose": {"checkpoint": "demo"}},
        "output": {"uri": "out", "storage_options": {"secret": "s3cr3t"}},
    } | changes


def fields(**changes: Any) -> dict[str, Any]:
    return parse_spec(values(**changes)).digest_fields({"pose": "0" * 64, "seg": "1" * 64})


@pytest.mark.parametrize("path", sorted((REPO / "jobs").glob("*.yaml")), ids=lambda path: path.name)
def test_every_job_file_of_the_repository_is_valid(path: Path) -> None:
    assert load_spec(path).name


def test_every_fault_is_listed_with_field_rule_and_value() -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(
            values(
                source={"format": "webdataset", "uri": "a", "boxxes": "b"},
                tasks={"pose": {"checkpoint": "demo", "flip_test": "maybe"}, "sez": {}},
            )
        )
    message = str(caught.value)
    assert "source.boxxes: no such field; did you mean `boxes`?" in message
    assert "tasks.pose.flip_test: Input should be a valid boolean" in message
    assert "found 'maybe'" in message
    assert "tasks.sez" in message


def test_a_missing_section_is_named() -> None:
    without = values()
    del without["output"]
    with pytest.raises(SpecError, match="output: required, but absent"):
        parse_spec(without)


def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("- a\n- b\n")
    with pytest.raises(SpecError, match="must be a mapping of sections, found list"):
        load_spec(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"absent\.yaml cannot be read"):
        load_spec(tmp_path / "absent.yaml")


def test_broken_yaml_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: [\n")
    with pytest.raises(SpecError, match="line 2"):
        load_spec(path)


def test_overrides_and_environment_variables_are_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "name: job\nsource: {format: images, uri: '${PHOTOS}/x'}\n"
        "tasks: {seg: {checkpoint: demo}}\noutput: {uri: out}\n"
    )
    monkeypatch.setenv("PHOTOS", "/data/photos")
    spec = load_spec(path, ["output.chunk_samples=7", "tasks.seg.dtype=float32"])
    assert spec.source.uri == "/data/photos/x"
    assert spec.output.chunk_samples == 7
    assert spec.tasks["seg"].dtype == "float32"


def test_an_unset_environment_variable_is_named(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: '${SAPIENS_BATCH_NOT_SET}'\n")
    with pytest.raises(SpecError, match="SAPIENS_BATCH_NOT_SET is not set"):
        load_spec(path)


def test_an_override_without_a_value_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: job\n")
    with pytest.raises(SpecError, match="expected dotted"):
        load_spec(path, ["name"])


def test_secrets_are_neither_published_nor_shown() -> None:
    spec = parse_spec(values())
    assert "s3cr3t" not in str(spec.public_dict())
    assert "s3cr3t" not in repr(spec)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"output": {"uri": "elsewhere"}},
        {"source": {"format": "webdataset", "uri": "moved/in.tar"}},
        {"runtime": {"device": "cpu", "batch_views": 2, "label_actors": 3, "compile": True}},
        {"errors": {"max_attempts": 9}},
        {"tasks": {"pose": {"checkpoint": "another/path/of/the/same/weights"}}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_only_changes_place_or_speed_keeps_the_digest(changes: dict[str, Any]) -> None:
    assert digest(fields(**changes)) == digest(fields())


@pytest.mark.parametrize(
    "changes",
    [
        {"tasks": {"pose": {"checkpoint": "demo", "flip_test": True}}},
        {"tasks": {"pose": {"checkpoint": "demo"}, "seg": {"checkpoint": "demo"}}},
        {"persons": {"from": "whole_image"}},
        {"output": {"uri": "out", "chunk_samples": 8}},
        {"source": {"format": "webdataset", "uri": "in.tar", "boxes": "boxes"}},
        {"runtime": {"dtype": "bfloat16"}},
    ],
    ids=["flip_test", "another task", "persons", "chunk_samples", "boxes", "dtype"],
)
def test_what_changes_labels_changes_the_digest(changes: dict[str, Any]) -> None:
    assert digest(fields(**changes)) != digest(fields())


def test_a_published_spec_is_valid_and_labels_the_same() -> None:
    spec = parse_spec(
        values(tasks={"pose": {"checkpoint": "demo"}, "embedding": {"checkpoint": "demo"}})
    )
    weights = {"pose": "0" * 64, "embedding": "1" * 64}
    again = parse_spec(spec.public_dict())
    assert again.digest_fields(weights) == spec.digest_fields(weights)


def test_a_setting_of_another_task_is_refused() -> None:
    with pytest.raises(SpecError, match=r"tasks\.pose\.pooling: only `embedding` has it"):
        parse_spec(values(tasks={"pose": {"checkpoint": "demo", "pooling": "patches"}}))


def test_other_weights_change_the_digest() -> None:
    spec = parse_spec(values())
    one, two = spec.digest_fields({"pose": "0" * 64}), spec.digest_fields({"pose": "f" * 64})
    assert digest(one) != digest(two)


def test_differences_name_the_field_and_both_values() -> None:
    before, after = fields(), fields(tasks={"pose": {"checkpoint": "demo", "flip_test": True}})
    assert differences(before, after) == ["tasks.pose.flip_test: false -> true"]


def test_a_task_that_is_new_is_shown_as_absent_before() -> None:
    assert differences({"a": {}}, {"a": {"b": 1}}) == ["a.b: (absent) -> 1"]
