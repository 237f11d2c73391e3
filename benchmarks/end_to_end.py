"""A whole job against a plain Ray Data and transformers script, in CPU seconds of all processes.

Photos of 1.7 megapixels, small random weights, on local disk; starting Python, Ray and the models
counts. Both write embeddings to Parquet, masks and normals as arrays: the script's maps have the
photo's size, as the documentation of transformers has it, or the size in which ours are stored.
What else the script (`plain_transformers.py`) lacks is in its docstring. From the root of the
repository: `python -m benchmarks.end_to_end`. The models need transformers.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
import yaml

from benchmarks import cpu_seconds
from benchmarks.control_plane import ENVIRONMENT
from benchmarks.decode import enlarged, photos
from benchmarks.plain_transformers import MODELS, SIZE
from sapiens_batch.samples.build import PHOTOS

PIXELS = 1_700_000
SHARD_SAMPLES = 48
ALL = ("embedding", "seg", "normal")
COMPARISONS: tuple[tuple[tuple[str, ...], str, float | None], ...] = (
    (("embedding",), "frame", 1.2),
    (ALL, "photo", 2.0),
    (ALL, "frame", None),
)
"""Tasks, the size of the script's maps, and how many times less CPU than it ours is to take."""

HEADS: dict[str, dict[str, Any]] = {
    "seg": {"upsample_out_channels": [32, 24, 16, 8], "conv_out_channels": [8]},
    "normal": {
        "use_pixel_shuffle": True,
        "upsample_out_channels": [32, 24, 16, 8],
        "upsample_kernel_sizes": [3] * 4,
        "conv_out_channels": [8],
        "conv_kernel_sizes": [3],
    },
}
OUTPUTS = {"seg": 29, "normal": 3}


def write_corpus(folder: Path, originals: Path, num_photos: int) -> None:
    """Tars of JPEGs: the photos of a folder in turns, enlarged."""
    encoded = [enlarged(image, PIXELS) for image in photos(originals)]
    folder.mkdir()
    for start in range(0, num_photos, SHARD_SAMPLES):
        with tarfile.open(folder / f"{start:05}.tar", "w") as shard:
            for number in range(start, min(start + SHARD_SAMPLES, num_photos)):
                member = tarfile.TarInfo(f"{number:05}.jpg")
                data = encoded[number % len(encoded)]
                member.size = len(data)
                shard.addfile(member, io.BytesIO(data))


def write_models(folder: Path) -> None:
    """Small models of the port with random weights, each task with an encoder of its own."""
    for number, (task, name) in enumerate(MODELS.items()):
        config = transformers.Sapiens2Config(
            hidden_size=48,
            intermediate_size=192,
            num_hidden_layers=18,
            num_attention_heads=3,
            num_key_value_attention_heads=1,
            image_size=list(SIZE),
            head_config=HEADS.get(task, {}),
            num_labels=OUTPUTS.get(task, 2),
        )
        torch.manual_seed(number)
        getattr(transformers, name)(config).save_pretrained(folder / task)


def job_file(folder: Path, output: Path, tasks: tuple[str, ...]) -> Path:
    """The same as a job of ours."""
    job = {
        "name": "end-to-end",
        "source": {"format": "webdataset", "uri": f"{folder}/corpus/*.tar"},
        "tasks": {task: {"checkpoint": f"{folder}/models/{task}"} for task in tasks},
        "accept_licences": ["sapiens2"],
        "output": {"uri": str(output)},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def measure(folder: Path, who: str, tasks: tuple[str, ...], maps: str) -> cpu_seconds.Used:
    """Label once, in processes of their own."""
    with tempfile.TemporaryDirectory(prefix="end-to-end-") as output:
        if who == "ours":
            job = job_file(folder, Path(output), tasks)
            return cpu_seconds.run([sys.executable, "-m", "sapiens_batch", "run", str(job)])
        module = "benchmarks.plain_transformers"
        arguments = [f"{folder}/corpus", output, f"{folder}/models", maps, *tasks]
        return cpu_seconds.run([sys.executable, "-m", module, *arguments])


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=Path, default=PHOTOS, help="folder of JPEGs to enlarge")
    parser.add_argument("--count", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    print("| tasks | script's maps | CPU s | script | ratio | goal | wall s | script |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="end-to-end-") as name:
        folder = Path(name)
        write_corpus(folder / "corpus", options.photos, options.count)
        write_models(folder / "models")
        for tasks, maps, goal in COMPARISONS:
            used: dict[str, list[cpu_seconds.Used]] = {"ours": [], "plain": []}
            for _ in range(options.rounds):
                for who, found in used.items():
                    found.append(measure(folder, who, tasks, maps))
                    print(f"{', '.join(tasks)}: {who} {found[-1].cpu_s:.1f}", file=sys.stderr)
            cpu = [statistics.median(one.cpu_s for one in found) for found in used.values()]
            wall = [statistics.median(one.wall_s for one in found) for found in used.values()]
            print(
                f"| {', '.join(tasks)} | {maps} | {cpu[0]:.1f} | {cpu[1]:.1f} | "
                f"{cpu[1] / cpu[0]:.2f} | {f'≥ {goal:g}' if goal else ''} | "
                f"{wall[0]:.1f} | {wall[1]:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
