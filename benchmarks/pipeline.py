"""How much of the accelerators' time the pipeline keeps busy, measured with labelers that sleep.

Everything but the models is real: shards are read, images decoded, views made and labels written.
Efficiency is ideal time over actual time, from the start of the first chunk's labeling to the end
of the last one's, so that starting Ray does not count. Run it on a quiet machine, from the root of
the repository: `python -m benchmarks.pipeline`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sapiens_batch.records import TaskLabels, TaskName, ViewBatch, ViewSpec
from sapiens_batch.stages.context import JobContext
from sapiens_batch.stages.view_labeler import ViewLabeler
from tests.chaos.jobs import Place, make_job, run_here
from tests.cluster import shared_cluster
from tests.synthetic import Synthetic, write_corpus

CHUNK_SAMPLES = 2


@dataclass(frozen=True)
class Timed(Synthetic):
    """Loads a labeler that also notes when it was busy.

    Attributes:
        log: Folder for the notes.
    """

    log: str = ""

    def __call__(self, context: JobContext, num_threads: int | None) -> ViewLabeler:
        """See `stages.view_labeler.LoadLabeler`."""
        return _TimedLabeler(super().__call__(context, num_threads), Path(self.log))


class _TimedLabeler:
    def __init__(self, inner: ViewLabeler, log: Path) -> None:
        self._inner = inner
        self._log = log / f"{os.getpid()}-{uuid.uuid4().hex}"

    def label(self, views: Mapping[ViewSpec, ViewBatch]) -> Mapping[TaskName, TaskLabels]:
        started = time.time()
        labels = self._inner.label(views)
        with self._log.open("a") as file:
            file.write(f"{started} {time.time()}\n")
        return labels


def measure(corpus: Path, num_actors: int, seconds: float) -> tuple[int, float]:
    """Label a corpus; chunks, and seconds from the first to the end of the last."""
    with tempfile.TemporaryDirectory(prefix="pipeline-") as folder:
        log = Path(folder) / "log"
        log.mkdir()
        place = Place(str(corpus), f"{folder}/out")
        job = make_job(place, runtime={"label_actors": num_actors})
        assert run_here(job, labeler=Timed(seconds, log=str(log))).exit_code == 0
        lines = [line.split() for path in log.iterdir() for line in path.read_text().splitlines()]
    return len(lines), max(float(end) for _, end in lines) - min(float(one) for one, _ in lines)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=150, help="chunks per actor")
    parser.add_argument("--seconds", type=float, default=0.2, help="time that a chunk takes")
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many counts")
    options = parser.parse_args()
    shared_cluster()
    table = Table("actors", "chunks", "ideal s", "actual s", "efficiency", "all rounds")
    for num_actors in options.actors:
        with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
            num_shards = max(1, options.chunks * num_actors // 10)
            write_corpus(Path(folder), num_shards, 10 * CHUNK_SAMPLES)
            found = [
                measure(Path(folder), num_actors, options.seconds) for _ in range(options.rounds)
            ]
        num_chunks, actual_s = min(found, key=lambda one: one[1])
        ideal_s = num_chunks * options.seconds / num_actors
        rounds = " ".join(f"{ideal_s / one[1]:.3f}" for one in found)
        table.add_row(
            f"{num_actors}", f"{num_chunks}", f"{ideal_s:.1f}", f"{actual_s:.1f}",
            f"{ideal_s / actual_s:.3f}", rounds,
        )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
