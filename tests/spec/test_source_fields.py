"""Fields of the source section that its format does not look at."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from pydantic import ValidationError

from sapiens_batch.sources import SOURCES
from sapiens_batch.spec.job import SourceSpec
from sapiens_batch.spec.source_fields import without_effect


def test_each_field_without_effect_is_named_with_the_formats_that_have_it() -> None:
    with pytest.raises(ValidationError) as caught:
        SourceSpec(format="images", uri="x", boxes="boxes", snapshot=4)
    message = str(caught.value)
    assert "boxes: has no effect on `format: images`, only on webdataset, parquet" in message
    assert "snapshot: has no effect on `format: images`, only on lance, delta, iceberg" in message


@pytest.mark.parametrize("form", sorted(SOURCES))
def test_defaults_count_as_not_given(form: Any) -> None:
    spec = SourceSpec(format=form, uri="x")
    assert SourceSpec.model_validate(spec.model_dump()) == spec


@pytest.mark.parametrize(
    ("form", "fields"),
    [
        ("coco", {"root": "photos", "box_scores": "score", "shard_samples": 5}),
        ("listing", {"uri_column": "url", "key": "id", "boxes": "boxes"}),
        ("huggingface", {"split": "test", "image": ["image"]}),
        ("delta", {"snapshot": 3, "catalog_options": {"a": "b"}, "columns": ["x"]}),
        ("webdataset", {"companion": "none", "select": "s.npy", "limit": 2}),
    ],
)
def test_fields_of_a_format_are_taken(form: Any, fields: dict[str, Any]) -> None:
    assert without_effect(form, SourceSpec(format=form, uri="x", **fields)) == []


def test_every_format_says_what_it_looks_at() -> None:
    forms = get_args(SourceSpec.model_fields["format"].annotation)
    for form in forms:
        without_effect(form, SourceSpec(format=form, uri="x"))
