"""YAML files: what is refused before anybody looks at the values."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapiens_batch.errors import SpecError
from sapiens_batch.spec.loading import load_spec
from sapiens_batch.spec.yaml_file import read_yaml


def test_a_key_that_stands_twice_is_refused_with_both_places(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: job\noutput:\n  uri: first\n  chunk_samples: 3\n  uri: second\n")
    with pytest.raises(SpecError, match=r"(?s)`uri` stands in line 3.*again.*line 5"):
        load_spec(path)


def test_a_key_may_stand_in_two_sections_and_override_a_merged_one(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text("a: &base {x: 1, y: 2}\nb:\n  <<: *base\n  x: 3\n")
    assert read_yaml(path, "file") == {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 2}}


@pytest.mark.parametrize("text", ["", "# nothing yet\n"])
def test_an_empty_job_file_says_that_it_is_empty(tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(SpecError, match=r"job\.yaml is empty: it needs .*source, tasks"):
        load_spec(path)


def test_an_override_that_is_no_yaml_is_named(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: job\n")
    with pytest.raises(SpecError, match=r"--set name=\[: the value is not valid YAML"):
        load_spec(path, ["name=["])
