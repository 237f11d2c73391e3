"""The script that a user writes with Ray Data alone, for `control_plane.py` to compare with.

Read tars, decode, label in an actor, write Parquet. No resume, no frames, no place for a bad image.
"""

from __future__ import annotations

import io
import json
import logging
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
import ray
from PIL import Image

from sapiens_batch.records import Array

SIZE = (8, 6)
NUM_CPUS = 4
"""As many as a local Ray of ours has on a small machine."""

Batch = dict[str, Array]


def decode(row: dict[str, Any]) -> dict[str, Any]:
    """One encoded image to a view, as Ray's guides do it."""
    image = Image.open(io.BytesIO(row["png"])).convert("RGB")
    view = np.asarray(image.resize(SIZE[::-1]))
    return {"key": row["__key__"], "view": view, "size": np.array(image.size, np.int32)}


class Label:
    """The labels of `tests.synthetic`: numbers that follow from pixels."""

    def __call__(self, batch: Batch) -> Batch:
        """Columns of two tasks, one of them a small map."""
        values = batch["view"].reshape(len(batch["view"]), -1).sum(1) % 251
        return {
            "key": batch["key"],
            "size": batch["size"],
            "seg": np.broadcast_to(values[:, None, None], (len(values), 2, 3)).astype(np.uint8),
            "seg_class_pixels": np.stack([values, values], 1).astype(np.int32),
            "box": np.zeros((len(values), 4), np.float32),
            "keypoints": np.broadcast_to(values[:, None, None], (len(values), 2, 2)).astype("f4"),
            "keypoint_scores": np.stack([values, values], 1).astype(np.float32),
        }


def label(shards: list[str], output: str, batch_size: int) -> None:
    """Label tars."""
    actors = ray.data.ActorPoolStrategy(size=1)
    (
        ray.data.read_webdataset(shards, decoder=None)
        .map(decode)
        .map_batches(Label, batch_size=batch_size, num_gpus=1, compute=actors)
        .write_parquet(output)
    )


def main() -> None:
    """Label a folder so many times over, and print the driver's CPU seconds."""
    corpus, output, batch_size, times = sys.argv[1:]
    # a GPU by name: without one in the graph, decoding would be done by the actor
    ray.init(
        address="local", num_cpus=NUM_CPUS, num_gpus=1, include_dashboard=False,
        log_to_driver=False, logging_level="ERROR",
    )  # fmt: skip
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    shards = sorted(str(path) for path in Path(corpus).iterdir())
    label(shards * int(times), output, int(batch_size))
    ray.shutdown()
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"driver_s": used.ru_utime + used.ru_stime}))


if __name__ == "__main__":
    main()
