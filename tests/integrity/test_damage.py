"""Whatever happens to a finished job's bytes, a reader gets the true values or an error (I8)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sapiens_batch.cli import app
from sapiens_batch.errors import ProtocolError, SapiensBatchError
from sapiens_batch.labelset import open_labels
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.snapshot import write_snapshot
from sapiens_batch.storage import open_store
from tests.integrity.reads import QUICK, SLOW, Read, digest
from tests.labeled_job import make_labeled_job

NUM_FLIPS = 600
SEED = 20_261_201
Expected = Mapping[str, str]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards of four samples in two chunks each, all tasks, and a snapshot."""
    path = tmp_path_factory.mktemp("integrity") / "job"
    make_labeled_job(path, num_samples=8, chunk_samples=2, shard_samples=4, row_size=(32, 24))
    write_snapshot(Manifest.open(open_store(str(path))), min_new_commits=1)
    return path


@pytest.fixture(scope="module")
def expected(job: Path) -> Expected:
    labels = open_labels(str(job))
    return {name: digest(read, job, labels) for name, read in QUICK.items()}


@contextmanager
def replaced(path: Path, data: bytes) -> Iterator[None]:
    """Other bytes in the place of an object, for a while."""
    before = path.read_bytes()
    path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(before)


def objects(job: Path) -> list[Path]:
    return sorted(path for path in job.rglob("*") if path.is_file())


def two_of(rng: random.Random) -> dict[str, Read]:
    """Two ways to read: all ways meet all kinds of damage, in a fifth of the time."""
    return {name: QUICK[name] for name in rng.sample(list(QUICK), 2)}


def silent(job: Path, damaged: Path, expected: Expected, reads: Mapping[str, Read]) -> list[str]:
    """Reads that gave other values, or an error that does not name the damaged object."""
    key = damaged.relative_to(job).as_posix()
    try:
        labels = open_labels(str(job))
    except SapiensBatchError as error:
        return [] if key in str(error) else [f"opening named {error}, not {key}"]
    found = []
    for name, read in reads.items():
        try:
            if digest(read, job, labels) != expected[name]:
                found.append(f"{name} gave other values of {key}")
        except SapiensBatchError as error:
            if key not in str(error):
                found.append(f"{name} named {error}, not {key}")
    return found


def with_flipped_bit(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def test_no_flipped_bit_in_any_object_is_read_silently(job: Path, expected: Expected) -> None:
    rng = random.Random(SEED)
    found = []
    paths = objects(job)
    for _ in range(NUM_FLIPS):
        path = rng.choice(paths)
        with replaced(path, with_flipped_bit(path.read_bytes(), rng)):
            found += silent(job, path, expected, two_of(rng))
    assert found == []


@pytest.mark.parametrize("name", SLOW)
def test_no_flipped_bit_reaches_what_is_made_of_labels(name: str, job: Path) -> None:
    rng = random.Random(SEED)
    reads = {name: SLOW[name]}
    truth = {name: digest(SLOW[name], job, open_labels(str(job)))}
    for pattern in ("tables/images/**/*.parquet", "arrays/*/*/*.zarr/c/**/0"):
        path = rng.choice([one for one in sorted(job.glob(pattern)) if one.is_file()])
        with replaced(path, with_flipped_bit(path.read_bytes(), rng)):
            assert silent(job, path, truth, reads) == []


def test_no_zeroed_range_and_no_other_length_is_read_silently(
    job: Path, expected: Expected
) -> None:
    rng = random.Random(SEED)
    found = []
    for path in objects(job):
        data = path.read_bytes()
        start = rng.randrange(len(data))
        stop = min(len(data), start + 4096)
        for changed in (
            data[:start] + bytes(stop - start) + data[stop:],
            data[:start],
            data[:-1],
            data + b"\0",
            b"",
        ):
            with replaced(path, changed):
                found += silent(job, path, expected, two_of(rng))
    assert found == []


def test_no_object_in_the_place_of_another_is_read_silently(job: Path, expected: Expected) -> None:
    # what is read by ranges is told apart by size and index, which small masks may share
    reads = {name: read for name, read in QUICK.items() if name != "ranges"}
    found = []
    for kind in ("tables/*/*/*", "arrays/*/*/*/c/*/0/0", "arrays/*/*/*/c/*/0/0/0", "commits/*/*"):
        paths = [path for path in sorted(job.glob(kind)) if path.is_file()]
        assert len(paths) > 1
        for path, other in zip(paths, [*paths[1:], paths[0]], strict=True):
            with replaced(path, other.read_bytes()):
                found += silent(job, path, expected, reads)
    assert found == []


def test_no_missing_object_is_read_silently(job: Path, expected: Expected) -> None:
    found = []
    for path in objects(job):
        if path.is_relative_to(job / "commits") or path.name == "job.json":
            continue  # what has no commit is not there (I2), and without its document no job is
        data = path.read_bytes()
        path.unlink()
        try:
            found += silent(job, path, expected, QUICK)
        finally:
            path.write_bytes(data)
    assert found == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "coco", "JOB", "OUT"],
        ["preview", "JOB", "--output", "OUT/p.html"],
        ["report", "JOB", "--output", "OUT/r.html"],
        ["curate", "JOB", "OUT.parquet", "--where", "num_persons > 0"],
        ["search", "build", "JOB"],
        ["errors", "JOB"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_that_meets_damage_names_the_object(
    arguments: list[str], job: Path, tmp_path: Path
) -> None:
    """And leaves no traceback: what is raised is ours, and ends as one message and exit code 1."""
    named = [one.replace("JOB", str(job)).replace("OUT", str(tmp_path / "o")) for one in arguments]
    with ExitStack() as damage:
        for path in job.glob("tables/images/*/*"):
            data = path.read_bytes()
            damage.enter_context(replaced(path, data[:200] + bytes(32) + data[232:]))
        error = CliRunner().invoke(app, named).exception
    assert isinstance(error, ProtocolError), error
    assert error.exit_code == 1
    assert str(error).startswith("tables/images/")
    assert "verify --repair" in str(error)
