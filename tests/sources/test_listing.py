"""Reading images named in a text file."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapiens_batch.errors import InputError
from sapiens_batch.job.spec import SourceSpec
from sapiens_batch.sources import make_source
from tests.conformance.source_contract import SourceContract, samples_of


class TestListingSource(SourceContract):
    SHARD_KEYS = ("b.jpg..a b.jpg", "gone.jpg..gone.jpg")
    SAMPLE_KEYS = (("b.jpg", "a b.jpg"), ("gone.jpg",))

    def write_corpus(self, folder: Path) -> None:
        (folder / "list.txt").write_text("b.jpg\n\na b.jpg\r\ngone.jpg")
        (folder / "b.jpg").write_bytes(b"B")
        (folder / "a b.jpg").write_bytes(b"A")

    def spec(self, folder: Path) -> SourceSpec:
        return SourceSpec(format="listing", uri=str(folder / "list.txt"), shard_samples=2)


def test_lines_are_relative_to_the_root_or_absolute(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.jpg").write_bytes(b"A")
    (tmp_path / "b.jpg").write_bytes(b"B")
    (tmp_path / "list.txt").write_text(f"a.jpg\n{tmp_path}/b.jpg\nfile://{tmp_path}/b.jpg\n")
    spec = SourceSpec(
        format="listing", uri=str(tmp_path / "list.txt"), root=str(tmp_path / "images")
    )
    source = make_source(spec)
    (shard,) = source.plan()
    assert [sample.encoded for sample in samples_of(source, shard)] == [b"A", b"B", b"B"]


def test_a_repeated_line_is_quarantined(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"A")
    (tmp_path / "list.txt").write_text("a.jpg\na.jpg\n")
    source = make_source(SourceSpec(format="listing", uri=str(tmp_path / "list.txt")))
    (shard,) = source.plan()
    found = [sample.problem and sample.problem.reason for sample in samples_of(source, shard)]
    assert found == [None, "source.duplicate_key"]


def test_a_listing_that_is_no_text_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes(b"a.jpg\n\xff\xfe\n")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        list(make_source(SourceSpec(format="listing", uri=str(tmp_path / "list.txt"))).plan())
