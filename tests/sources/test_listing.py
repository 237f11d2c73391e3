"""Reading images named in a text file or a table."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sapiens_batch.errors import InputError
from sapiens_batch.sources import make_source
from sapiens_batch.spec.job import SourceSpec
from tests.conformance.source_contract import SourceContract, samples_of
from tests.sources.corpora import read_shard, reasons


class TestListingSource(SourceContract):
    SHARD_KEYS = ("b.jpg..a b.jpg", "gone.jpg..gone.jpg")
    SAMPLE_KEYS = (("b.jpg", "a b.jpg"), ("gone.jpg",))

    def write_corpus(self, folder: Path) -> None:
        (folder / "list.txt").write_text("b.jpg\n\na b.jpg\r\ngone.jpg")
        (folder / "b.jpg").write_bytes(b"B")
        (folder / "a b.jpg").write_bytes(b"A")

    def spec(self, folder: Path) -> SourceSpec:
        return SourceSpec(format="listing", uri=str(folder / "list.txt"), shard_samples=2)


class TestCsvListing(SourceContract):
    SHARD_KEYS = ("l.csv[000000000:000000002]", "l.csv[000000002:000000003]")
    SAMPLE_KEYS = (("b.jpg", "a, b.jpg"), ("gone.jpg",))

    def write_corpus(self, folder: Path) -> None:
        (folder / "l.csv").write_text('id,url\n1,b.jpg\n2,"a, b.jpg"\n3,gone.jpg\n')
        (folder / "b.jpg").write_bytes(b"B")
        (folder / "a, b.jpg").write_bytes(b"A")

    def spec(self, folder: Path) -> SourceSpec:
        return SourceSpec(format="listing", uri=str(folder / "l.csv"), shard_samples=2)


class TestParquetListing(SourceContract):
    SHARD_KEYS = ("l.parquet[000000000:000000003]", "l.parquet[000000003:000000005]")
    SAMPLE_KEYS = (("0", "1", "2"), ("3", "4"))

    def write_corpus(self, folder: Path) -> None:
        names = [f"{number}.jpg" for number in range(5)]
        table = pa.table({"image_path": names, "key": list("01234")})
        pq.write_table(table, folder / "l.parquet", row_group_size=2)
        for name in names[1:]:
            (folder / name).write_bytes(name.encode())

    def spec(self, folder: Path) -> SourceSpec:
        return SourceSpec(format="listing", uri=str(folder / "l.parquet"), shard_samples=3)


def test_tables_keep_columns_boxes_and_keys(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"A")
    (tmp_path / "l.tsv").write_text(
        'link\tuid\tcaption\tboxes\na.jpg\tx\t"two\nlines"\t[[1, 2, 3, 4]]\na.jpg\tx\t\t[]\n'
    )
    samples, _ = read_shard(
        tmp_path / "l.tsv",
        "listing",
        uri_column="link",
        key="uid",
        columns=["caption"],
        boxes="boxes",
    )
    assert samples[0].key == "x"
    assert samples[0].encoded == b"A"
    assert samples[0].extra == {"caption": "two\nlines"}
    assert samples[0].boxes is not None and samples[0].boxes.tolist() == [[1, 2, 3, 4]]
    assert reasons(samples) == {"x": "source.duplicate_key"}


@pytest.mark.parametrize(
    ("text", "fields", "message"),
    [
        ("url,path\na,b\n", {}, r"several columns.*url, path.*uri_column: url"),
        ("url\na\n", {"uri_column": "link"}, r"no image column 'link': it has 'url'"),
        ("url\na\n", {"columns": ["caption"]}, r"no column 'caption'"),
        ("url,text\na,b\nc\n", {}, r"Expected 2 columns, got 1: c"),
        ("", {}, r"not a readable table"),
    ],
)
def test_a_table_that_cannot_be_a_listing_is_refused_while_planning(
    tmp_path: Path, text: str, fields: dict[str, object], message: str
) -> None:
    (tmp_path / "l.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_shard(tmp_path / "l.csv", "listing", **fields)


def test_a_listing_that_changed_after_planning_is_refused(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("url\na.jpg\n")
    source = make_source(SourceSpec(format="listing", uri=str(tmp_path / "l.csv")))
    (shard,) = source.plan()
    (tmp_path / "l.csv").write_text("url\nanother.jpg\n")
    with pytest.raises(InputError, match="has changed since it was planned"):
        list(source.read(shard))


def test_addresses_may_have_any_scheme(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"A")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.jpg").write_bytes(b"C")
    fsspec.filesystem("memory").pipe_file("/listing-test/m.jpg", b"M")
    names = ["a.jpg", f"{tmp_path}/a.jpg", f"file://{tmp_path}/a.jpg", "file://b/c.jpg"]
    names += ["memory://listing-test/m.jpg", "memory://listing-test/gone.jpg"]
    (tmp_path / "l.csv").write_text("url\n" + "\n".join(names))
    samples, _ = read_shard(tmp_path / "l.csv", "listing")
    assert [sample.key for sample in samples] == names
    assert [sample.encoded for sample in samples] == [b"A", b"A", b"A", b"C", b"M", None]
    assert reasons(samples) == {"memory://listing-test/gone.jpg": "source.missing_file"}


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
