"""Small jobs without models, on any store, and what must be true of them however they ended.

The tasks are tiny and labels follow from pixels, so that an undisturbed run and a disturbed one can
be compared byte by byte and a run costs little besides Ray.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from sapiens_batch.driver.partition import WHOLE, Partition
from sapiens_batch.driver.progress import Progress
from sapiens_batch.driver.run import JobSummary, carry_out
from sapiens_batch.protocol.commit import Commit
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.protocol.plan import write_plan
from sapiens_batch.records import ViewKind, ViewSpec
from sapiens_batch.sinks import label_schema as schema_json
from sapiens_batch.sinks import parquet
from sapiens_batch.sources import make_source
from sapiens_batch.spec.digest import digest
from sapiens_batch.spec.loading import parse_spec
from sapiens_batch.stages.context import JobContext
from sapiens_batch.storage import open_store
from sapiens_batch.verify import check_job
from tests.cluster import SharedCluster
from tests.small_tasks import SCHEMAS
from tests.synthetic import Synthetic

VIEWS = {"seg": ViewSpec(ViewKind.STRETCH, 8, 6), "pose": ViewSpec(ViewKind.CROP, 8, 6)}
DRIVER_TIMEOUT_S = 240.0


@dataclass(frozen=True)
class Place:
    """Where a job's input and output are.

    Attributes:
        corpus: Address of the folder of shards.
        output: Address of the job directory.
        options: Fsspec options for both.
    """

    corpus: str
    output: str
    options: dict[str, Any] = field(default_factory=dict)


class Messages:
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, text: str) -> None:
        self.texts.append(text)

    def update(self, progress: Progress) -> None:
        pass

    def close(self) -> None:
        pass


def make_job(
    place: Place,
    *,
    errors: dict[str, Any] | None = None,
    runtime: dict[str, Any] | None = None,
    chunk_samples: int = 2,
) -> JobContext:
    """Create a job directory with its plan, or open it.

    Repeated faults in one job are no poison, so many attempts are allowed.
    """
    spec = parse_spec(
        {
            "name": "chaos",
            "source": {
                "format": "webdataset",
                "uri": f"{place.corpus}/*.tar",
                "storage_options": place.options,
            },
            "persons": {"from": "whole_image"},
            "tasks": {name: {"checkpoint": "demo"} for name in SCHEMAS},
            "output": {
                "uri": place.output,
                "storage_options": place.options,
                "chunk_samples": chunk_samples,
            },
            "errors": {"max_attempts": 20, **(errors or {})},
            "runtime": runtime or {},
        }
    )
    fields = spec.digest_fields(dict.fromkeys(SCHEMAS, "0" * 64))
    store = open_store(place.output, place.options)
    document = JobDocument(
        name=spec.name,
        spec={**spec.public_dict(), "digest_fields": fields},
        spec_digest=digest(fields),
        schemas=tuple(schema_json.to_json(one) for one in SCHEMAS.values()),
        capabilities=asdict(store.probe()),
    )
    manifest = Manifest.create(store, document)
    if not manifest.plans():
        write_plan(manifest.store, make_source(spec.source).plan())
    return JobContext(spec, {}, SCHEMAS, VIEWS, True, document.spec_digest, manifest.store)


def run_here(
    context: JobContext,
    *,
    labeler: Synthetic | None = None,
    partition: Partition = WHOLE,
    messages: Messages | None = None,
) -> JobSummary:
    """Run or resume a job with this process as its driver."""
    return carry_out(
        context,
        Manifest.open(context.store),
        messages or Messages(),
        partition=partition,
        load=labeler or Synthetic(),
    )


def start_driver(
    context: JobContext,
    cluster: SharedCluster,
    *,
    seconds: float = 0.0,
    partition: str = "1/1",
) -> subprocess.Popen[bytes]:
    """Begin to run or resume a job in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.driver", str(seconds), partition],
        stdin=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env=cluster.driver_environment(),
    )
    assert process.stdin is not None
    process.stdin.write(pickle.dumps(context))
    process.stdin.close()
    return process


def run_apart(context: JobContext, cluster: SharedCluster) -> int:
    """Run or resume a job in a process of its own; its exit status, negative for a signal."""
    with start_driver(context, cluster) as process:
        try:
            return process.wait(DRIVER_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


Dataset = dict[str, dict[str, Any]]


def dataset(context: JobContext) -> Dataset:
    """What a reader sees, by shard key: counts, table rows, and bytes of array objects."""
    manifest = Manifest.open(context.store)
    found: Dataset = {}
    for commit in manifest.commits():
        tables = {
            name: parquet.decode(context.store.read(stored.key))
            for name, stored in commit.tables.items()
        }
        found[commit.shard_key] = {
            "counts": commit.counts,
            "tables": {name: _comparable(table, commit) for name, table in tables.items()},
            "arrays": {
                task: [context.store.read(one.key) for one in array.chunks]
                for task, array in commit.arrays.items()
            },
        }
    return found


def _comparable(table: pa.Table, commit: Commit) -> pa.Table:
    """A table without what differs from run to run, after checking that.

    Ids hold times of files, which differ where a corpus was copied; roots of arrays are named after
    attempts.
    """
    names = [name for name in table.column_names if name.endswith("_array")]
    for name in names:
        roots = {commit.arrays[name.removesuffix("_array")].root}
        assert set(table[name].drop_null().to_pylist()) <= roots, f"{name} names another root"
    return table.drop_columns(["shard_id", *names])


def check_whole(context: JobContext, expected: Dataset) -> None:
    """Check that a job is complete, sound, equal to an undisturbed one, and has nothing to do.

    Raises:
        AssertionError: It is not; the message says what differs.
    """
    manifest = Manifest.open(context.store)
    report = check_job(manifest)
    assert report.exit_code == 0, report.findings or report.missing_shards
    found = dataset(context)
    assert found.keys() == expected.keys()
    for key, shard in expected.items():
        for part, values in shard.items():
            assert found[key][part] == values, f"{part} of shard {key} differ"
        counts, rows = found[key]["counts"], found[key]["tables"]["images"]
        assert counts.samples == rows.num_rows == len(set(rows["index"].to_pylist()))
    messages = Messages()
    again = run_here(context, messages=messages)
    assert (again.exit_code, again.new_samples) == (0, 0)
    assert messages.texts == [], "a complete job started Ray"
