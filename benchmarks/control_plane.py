"""What a chunk costs besides its labels: CPU of all processes and of the driver.

A slope over two sizes of job, so that starting Ray and loading do not count, beside the script that
a user writes with Ray Data alone (`plain_ray.py`) in the same run. Images are tiny, labels cost
nothing, everything else is real: tars read, images decoded, arrays, receipts and tables written.
Run it on a quiet machine, from the root of the repository: `python -m benchmarks.control_plane`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import cpu_seconds
from tests.synthetic import write_corpus

SIZES = (80, 400)
SHARD_CHUNKS = 10
PLAIN_TIMES = 2
"""How often the plain script reads the larger corpus, as it costs less than Ray's start varies."""

LIMITS = {32: (55.0, 7.0, None), 128: (120.0, 8.0, 4.0)}
"""By samples a chunk: ms of all processes and of the driver, and all over the plain script's."""

ENVIRONMENT = {
    "OMP_WAIT_POLICY": "passive",  # else threads of torch that wait count as work on a busy machine
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of a run, or milliseconds of a chunk: of all processes and of the driver."""

    all: float
    driver: float


def label_ours(corpus: str, output: str, samples: int) -> None:
    """Label with the product, this process being the driver, and print its CPU seconds."""
    from tests.chaos.jobs import Place, make_job, run_here

    job = make_job(Place(corpus, output), chunk_samples=samples)
    assert run_here(job).exit_code == 0
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"driver_s": used.ru_utime + used.ru_stime}))


def cost(*module_and_arguments: str) -> Cost:
    """Run a module with arguments, a folder for output in place of `OUTPUT`."""
    with tempfile.TemporaryDirectory(prefix="control-plane-") as folder:
        arguments = [f"{folder}/out" if one == "OUTPUT" else one for one in module_and_arguments]
        used = cpu_seconds.run([sys.executable, "-m", *arguments])
    if not used.exact:
        print("no control group can be made here: processes are sampled", file=sys.stderr)
    found = Cost(used.cpu_s, json.loads(used.output.splitlines()[-1])["driver_s"])
    print(f"{found.all:6.1f} s, driver {found.driver:4.1f} s:", *arguments, file=sys.stderr)
    return found


def measure(
    samples: int, sizes: Sequence[int], rounds: int, shard_chunks: int
) -> tuple[Cost, Cost]:
    """Milliseconds of a chunk of ours and of the plain script; the best of some rounds in turns."""
    ours: list[list[Cost]] = [[], []]
    plain: list[list[Cost]] = [[], []]
    with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
        corpora = [f"{folder}/{size}" for size in sizes]
        for corpus, size in zip(corpora, sizes, strict=True):
            write_corpus(Path(corpus), size // shard_chunks, shard_chunks * samples)
        for _ in range(rounds):
            for i, (corpus, times) in enumerate(zip(corpora, (1, PLAIN_TIMES), strict=True)):
                given = (corpus, "OUTPUT", str(samples))
                ours[i].append(cost("benchmarks.control_plane", "--ours", *given))
                plain[i].append(cost("benchmarks.plain_ray", *given, str(times)))
    return (
        slope(*ours, num_chunks=sizes[1] - sizes[0]),
        slope(*plain, num_chunks=PLAIN_TIMES * sizes[1] - sizes[0]),
    )


def slope(small: list[Cost], large: list[Cost], *, num_chunks: int) -> Cost:
    """Milliseconds of a chunk, from runs that are so many chunks apart."""
    least = [
        [min(one.all for one in runs), min(one.driver for one in runs)] for runs in (small, large)
    ]
    return Cost(*(1e3 * (most - few) / num_chunks for few, most in zip(*least, strict=True)))


def compared(value: float, limit: float | None) -> str:
    """A value beside the limit that it is to hold."""
    if limit is None:
        return f"{value:.1f}"
    return f"{value:.1f} {'≤' if value <= limit else '**>**'} {limit:g}"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, nargs="+", default=[32, 128], help="of a chunk")
    parser.add_argument("--chunks", type=int, nargs=2, default=SIZES, help="two sizes of job")
    parser.add_argument("--shard-chunks", type=int, default=SHARD_CHUNKS)
    parser.add_argument("--rounds", type=int, default=1, help="the least of so many counts")
    parser.add_argument("--ours", nargs=3, metavar=("CORPUS", "OUTPUT", "SAMPLES"))
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    if options.ours:
        label_ours(options.ours[0], options.ours[1], int(options.ours[2]))
        return
    print("| samples a chunk | ms: all | driver | plain script: all | driver | ratio | driver |")
    print("|---|---|---|---|---|---|---|")
    for samples in options.samples:
        ours, plain = measure(samples, options.chunks, options.rounds, options.shard_chunks)
        most, most_driver, most_ratio = LIMITS.get(samples, (None, None, None))
        print(
            f"| {samples} | {compared(ours.all, most)} | {compared(ours.driver, most_driver)} | "
            f"{plain.all:.1f} | {plain.driver:.1f} | "
            f"{compared(ours.all / plain.all, most_ratio)} | {ours.driver / plain.driver:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
