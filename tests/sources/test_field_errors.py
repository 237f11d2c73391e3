"""An address that cannot be used is told with the field that named it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sapiens_batch.errors import InputError
from sapiens_batch.sources import make_source
from sapiens_batch.spec.job import SourceSpec
from sapiens_batch.storage.input_errors import MissingInputError, errors_of_field


@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        ("webdataset", r"'/.*/\*\.tar'"),
        ("parquet", r"'/.*/\*\.parquet'"),
        ("listing", r"images\.txt"),
    ],
)
def test_a_folder_is_answered_with_a_pattern_of_the_format(
    tmp_path: Path, form: Any, pattern: str
) -> None:
    with pytest.raises(InputError, match=rf"^source\.uri: .* is a folder.*name .*{pattern}"):
        list(make_source(SourceSpec(format=form, uri=str(tmp_path))).plan())


@pytest.mark.parametrize(
    "form", ["webdataset", "parquet", "listing", "coco", "images", "huggingface"]
)
def test_an_address_that_does_not_exist_is_told_with_its_field(tmp_path: Path, form: Any) -> None:
    with pytest.raises(InputError, match=r"^source\.uri: .*gone"):
        list(make_source(SourceSpec(format=form, uri=str(tmp_path / "gone"))).plan())


def test_the_kind_of_error_stays() -> None:
    with pytest.raises(MissingInputError, match=r"^source\.uri: x$"), errors_of_field("source.uri"):
        raise MissingInputError("x")
