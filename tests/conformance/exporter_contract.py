"""What every exporter must do, whatever its format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sapiens_batch.errors import DriftError, InputError, ProtocolError, SpecError
from sapiens_batch.export import EXPORTERS, ExportRequest, export_labels
from sapiens_batch.export.base import Exporter, Made, ShardToExport
from sapiens_batch.export.run import run_export
from sapiens_batch.storage import open_store


def objects(folder: Path) -> dict[str, bytes]:
    """What an export holds, without its own notes."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    named = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    return {key: data for key, data in named.items() if not key.startswith(".export/")}


class ExporterContract:
    """Subclass it with a format and, where it needs some, options."""

    format_name: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}
    changed: ClassVar[dict[str, Any]] = {}
    """One option with another value than in `options`; empty for a format without options."""

    @pytest.fixture(scope="class")
    @classmethod
    def exported(cls, job: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = tmp_path_factory.mktemp("contract") / "whole"
        assert export_labels(cls.format_name, cls.request(job, folder)).complete
        return folder

    @classmethod
    def request(cls, job: Path, folder: Path | str, **asked: Any) -> ExportRequest:
        return ExportRequest(str(job), str(folder), cls.options, **asked)

    def test_it_is_known_by_its_name(self) -> None:
        assert EXPORTERS[self.format_name].name == self.format_name

    def test_a_finished_export_is_not_touched_when_it_is_run_again(
        self, job: Path, exported: Path
    ) -> None:
        before = {path: path.stat().st_mtime_ns for path in exported.rglob("*")}
        summary = export_labels(self.format_name, self.request(job, exported))
        assert (summary.complete, summary.new_shards) == (True, 0)
        assert {path: path.stat().st_mtime_ns for path in exported.rglob("*")} == before

    def test_no_piece_is_left_behind(self, exported: Path) -> None:
        assert not list((exported / ".export" / "pieces").rglob("*.json"))

    def test_an_export_that_broke_off_ends_as_one_that_did_not(
        self, job: Path, exported: Path, tmp_path: Path
    ) -> None:
        request = self.request(job, tmp_path / "broken")
        with pytest.raises(PowerCutError):
            run_export(breaking(self.format_name, after=2), request)
        assert export_labels(self.format_name, request).complete
        assert objects(tmp_path / "broken") == objects(exported)

    def test_parts_make_the_same_export_as_one_run(
        self, job: Path, exported: Path, tmp_path: Path
    ) -> None:
        folder = tmp_path / "parts"
        runs = [
            export_labels(self.format_name, self.request(job, folder, part=(part, 2)))
            for part in (2, 1)
        ]
        assert [one.complete for one in runs] == [False, True]
        assert [one.new_shards for one in runs] == [1, 2]
        assert objects(folder) == objects(exported)

    def test_it_writes_through_a_store_that_is_not_a_disk(self, job: Path, exported: Path) -> None:
        uri = f"memory://contract-{self.format_name}"
        assert export_labels(self.format_name, self.request(job, uri)).complete
        store = open_store(uri)
        stored = {
            info.key: store.read(info.key)
            for info in store.list("")
            if not info.key.startswith(".export/")
        }
        assert stored == objects(exported)

    def test_provenance_says_which_job_and_models_the_labels_are_from(self, exported: Path) -> None:
        origin = json.loads((exported / "provenance.json").read_text())
        assert origin["spec_digest"] == "d" * 64
        assert origin["tasks"]["pose"]["model"] == "drawn-0.1b"
        assert origin["licences"] == {"drawn-0.1b": "CC0-1.0"}

    def test_other_options_in_the_same_folder_are_refused(self, job: Path, exported: Path) -> None:
        request = ExportRequest(str(job), str(exported), {**self.options, **self.changed})
        if not self.changed:
            request = self.request(job, exported, where="num_persons >= 1")
        with pytest.raises(DriftError, match="holds another export"):
            export_labels(self.format_name, request)

    def test_an_unknown_option_is_named(self, job: Path, tmp_path: Path) -> None:
        request = ExportRequest(str(job), str(tmp_path / "x"), {"colour": "red"})
        with pytest.raises(SpecError, match="colour"):
            export_labels(self.format_name, request)

    def test_the_job_directory_is_no_output(self, job: Path) -> None:
        with pytest.raises(InputError, match="job directory itself"):
            export_labels(self.format_name, self.request(job, job))

    def test_an_object_of_somebody_else_is_not_taken_for_its_own(
        self, job: Path, tmp_path: Path
    ) -> None:
        folder = tmp_path / "taken"
        folder.mkdir()
        (folder / "provenance.json").write_text("mine")
        with pytest.raises(ProtocolError, match="is not what this export writes"):
            export_labels(self.format_name, self.request(job, folder))


class PowerCutError(Exception):
    """Ends an export between two objects."""


def breaking(format_name: str, after: int) -> type[Exporter[Any]]:
    """The exporter, until so many objects are made."""
    whole = EXPORTERS[format_name]

    class Breaking(whole):  # type: ignore[misc, valid-type]  # the base is known at run time only
        """Stops in the middle of a shard."""

        made = 0

        def shard(self, shard: ShardToExport) -> Iterator[Made]:
            for made in super().shard(shard):
                if Breaking.made == after:
                    raise PowerCutError
                Breaking.made += 1
                yield made

    return Breaking
