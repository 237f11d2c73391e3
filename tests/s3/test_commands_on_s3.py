"""What people do with a labeled job, run from the command line on a job and a corpus in a bucket.

Options stand in the job file, because a job directory holds no secrets. What each command makes is
compared with the same command on the same job on disk, where its own tests look closer.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pytest
import yaml
from typer.testing import CliRunner

from sapiens_batch.cli import app
from sapiens_batch.curate.selection import read_selection
from sapiens_batch.spec.loading import parse_spec
from tests.label_schemas import label_schemas
from tests.labeled_job import label_corpus, write_corpus
from tests.s3.servers import KEY, REGION, SECRET, S3Server
from tests.s3.test_sources_on_s3 import upload

NUM_SAMPLES, SHARD_SAMPLES = 22, 11
NUM_LABELED = 20
"""Samples 7 and 13 are quarantined."""


@dataclass(frozen=True)
class Jobs:
    """One corpus labeled twice.

    Attributes:
        local: Job file of the job on disk.
        remote: Job file of the job in the bucket.
        server: The server.
    """

    local: Path
    remote: Path
    server: S3Server

    @property
    def both(self) -> tuple[Path, Path]:
        return self.local, self.remote


@pytest.fixture(scope="module")
def jobs(weed: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    folder = tmp_path_factory.mktemp("jobs")
    write_corpus(folder / "corpus", NUM_SAMPLES, SHARD_SAMPLES, seed=0)
    corpus = upload(weed, folder / "corpus")
    output = weed.uri(f"job-{uuid.uuid4().hex}")
    return Jobs(
        _job(folder / "local.yaml", str(folder / "corpus"), str(folder / "job"), {}),
        _job(folder / "remote.yaml", corpus, output, weed.options),
        weed,
    )


def _job(path: Path, corpus: str, output: str, options: dict[str, Any]) -> Path:
    """Write a job file and label what it says."""
    every = label_schemas((128, 96))
    schemas = {task: every[task] for task in ("embedding", "pose", "seg", "normal")}
    document = {
        "name": "both",
        "source": {
            "format": "webdataset", "uri": f"{corpus}/*.tar", "boxes": "boxes",
            "storage_options": options,
        },
        "tasks": {task: {"checkpoint": "demo"} for task in schemas},
        "output": {"uri": output, "chunk_samples": 8, "storage_options": options},
    }  # fmt: skip
    path.write_text(yaml.safe_dump(document))
    label_corpus(parse_spec(document), schemas, NUM_SAMPLES, SHARD_SAMPLES)
    return path


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def storage(server: S3Server) -> list[str]:
    """`--storage` for an export to the bucket."""
    client = yaml.safe_dump({"region_name": REGION}, default_flow_style=True).strip()
    options = {
        "endpoint_url": server.endpoint, "key": KEY, "secret": SECRET, "client_kwargs": client,
    }  # fmt: skip
    return [part for name, value in options.items() for part in ("--storage", f"{name}={value}")]


def objects(server: S3Server, uri: str) -> dict[str, bytes]:
    """Content by key below an address."""
    system = fsspec.filesystem("s3", **server.options, use_listings_cache=False)
    root = uri.removeprefix("s3://")
    return {path.removeprefix(f"{root}/"): system.cat_file(path) for path in system.find(root)}


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def members(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]


def test_a_coco_export_to_a_bucket_holds_what_the_one_on_disk_does(
    jobs: Jobs, tmp_path: Path
) -> None:
    call("export", "coco", jobs.local, tmp_path / "coco")
    target = jobs.server.uri(f"coco-{uuid.uuid4().hex}")
    call("export", "coco", jobs.remote, target, *storage(jobs.server))
    local, remote = files(tmp_path / "coco"), objects(jobs.server, target)
    names = [name for name in local if re.fullmatch(r"annotations/.*\.json", name)]
    assert names
    for name in names:
        one, other = (json.loads(export[name]) for export in (local, remote))
        assert len(one["images"]) == len(other["images"]) == NUM_LABELED
        assert one["annotations"] == other["annotations"]
    again = call("export", "coco", jobs.remote, target, *storage(jobs.server))
    assert "nothing left to do" in again


def test_a_webdataset_export_to_a_bucket_takes_the_photos_along(jobs: Jobs, tmp_path: Path) -> None:
    call("export", "webdataset", jobs.local, tmp_path / "tars")
    target = jobs.server.uri(f"tars-{uuid.uuid4().hex}")
    call("export", "webdataset", jobs.remote, target, *storage(jobs.server))
    local, remote = (
        {
            name: data
            for key, archive in exported.items()
            if key.endswith(".tar")
            for name, data in members(archive).items()
        }
        for exported in (files(tmp_path / "tars"), objects(jobs.server, target))
    )
    photos = [name for name in local if name.endswith(".jpg")]
    assert len(photos) == NUM_LABELED
    assert local.keys() == remote.keys()
    assert all(local[name] == remote[name] for name in photos)


def test_an_export_from_a_bucket_to_disk(jobs: Jobs, tmp_path: Path) -> None:
    for name, job in zip(("local", "remote"), jobs.both, strict=True):
        call("export", "png", job, tmp_path / name)
    local, remote = (files(tmp_path / name) for name in ("local", "remote"))
    pictures = [name for name in local if name.endswith(".png")]
    assert len(pictures) >= NUM_LABELED
    assert all(local[name] == remote[name] for name in pictures)


def test_a_preview_shows_the_photos_of_the_bucket(jobs: Jobs, tmp_path: Path) -> None:
    shown, num_pictures = [], []
    for number, job in enumerate(jobs.both):
        page = tmp_path / f"{number}.html"
        told = json.loads(call("preview", job, "-o", page, "-n", NUM_SAMPLES, "--json"))
        shown.append(sorted(told["samples"], key=lambda one: one["key"]))
        num_pictures.append(len(re.findall(r"data:image/", page.read_text())))
    assert shown[0] == shown[1]
    assert len(shown[0]) == NUM_SAMPLES
    assert num_pictures[0] == num_pictures[1] >= NUM_LABELED


def test_a_report_is_the_one_of_the_disk(jobs: Jobs, tmp_path: Path) -> None:
    local, remote = (
        json.loads(
            call("report", job, "-o", tmp_path / f"{n}.html", "--pictures", NUM_SAMPLES, "--json")
        )
        for n, job in enumerate(jobs.both)
    )
    for name in ("counts", "reasons", "persons_per_image", "num_masks", "classes", "aspects"):
        assert local[name] == remote[name], name
    assert local["counts"]["quarantined"] == 2
    looked_at = [report["brightness"] for report in (local, remote)]
    assert looked_at[0]["brightness"] == looked_at[1]["brightness"]
    assert sum(looked_at[0]["brightness"]) == NUM_LABELED


def test_a_comparison_of_disk_and_bucket_finds_no_difference(jobs: Jobs, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    compared = json.loads(call("compare", *jobs.both, "-o", page, "--json"))
    assert sum(compared["statuses"].values()) == NUM_SAMPLES
    persons = compared["num_persons"]
    assert persons["first"] == persons["second"] == persons["matched"] > 0


def test_verify_input_status_errors_and_gc(jobs: Jobs) -> None:
    assert "sound" in call("verify", jobs.remote, "--input")
    listed = [json.loads(call("errors", job, "--json"))["samples"] for job in jobs.both]
    told = [sorted((one["key"], one["reason"], one["message"]) for one in job) for job in listed]
    assert told[0] == told[1]
    assert [key for key, *_ in told[0]] == ["sample-000007", "sample-000013"]
    assert "nothing to remove" in call("gc", jobs.remote)


def test_search_and_curation_keep_their_index_in_the_bucket(jobs: Jobs, tmp_path: Path) -> None:
    for job in jobs.both:
        call("search", "build", job)
    query = ("search", "query", "--key", "sample-000003", "-n", "4", "--json")
    local, remote = (json.loads(call(*query, job)) for job in jobs.both)
    assert [one["key"] for one in local] == [one["key"] for one in remote]
    sheet = tmp_path / "sheet.html"
    call("search", "query", jobs.remote, "--key", "sample-000003", "--html", sheet)
    assert "data:image/" in sheet.read_text()
    target = f"{jobs.server.uri(uuid.uuid4().hex)}/chosen.parquet"
    recipe = ("--near-duplicates", "0.999", "--where", "num_persons >= 1")
    call("curate", jobs.local, tmp_path / "chosen.parquet", *recipe)
    call("curate", jobs.remote, target, *recipe)
    chosen, expected = (
        sorted(read_selection(uri, options).table["key"].to_pylist())
        for uri, options in ((target, jobs.server.options), (str(tmp_path / "chosen.parquet"), {}))
    )
    assert chosen == expected
    assert 0 < len(chosen) < NUM_LABELED
    exported = jobs.server.uri(f"chosen-{uuid.uuid4().hex}")
    call("export", "coco", jobs.remote, exported, "--select", target, *storage(jobs.server))
    (document,) = [
        json.loads(data)
        for name, data in objects(jobs.server, exported).items()
        if name.startswith("annotations/") and name.endswith(".json")
    ][:1]
    assert len(document["images"]) == len(chosen)
