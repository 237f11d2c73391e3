"""The script that a user writes with Ray Data and transformers, for `end_to_end.py`.

Read tars, decode, make model inputs, run a model a task, write embeddings to Parquet and maps to an
array file a photo. Maps have the photo's size (`photo`), as the documentation of transformers shows
it, or the size that ours are stored in (`frame`). No resume, no place for a bad image, one attempt.
Inputs and post-processing are the torch calls of `Sapiens2ImageProcessor` without its bookkeeping
(1.6 ms an image), so that torchvision is not needed.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
import transformers
from PIL import Image
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from benchmarks.plain_ray import NUM_CPUS
from sapiens_batch.records import Array

SIZE = (512, 384)
MODELS = {
    "embedding": "Sapiens2Model",
    "seg": "Sapiens2ForSemanticSegmentation",
    "normal": "Sapiens2ForNormalEstimation",
}
BATCH_SIZE = 8
_MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1) * 255
_STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1) * 255


class Prepare:
    """A photo to the inputs of the models."""

    def __init__(self, tasks: list[str]) -> None:
        self._tasks = tasks

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Stretched for an embedding and a mask, with its own shape and padded for normals."""
        image = Image.open(io.BytesIO(row["jpg"])).convert("RGB")
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()[None]
        size = pixels.shape[2:]
        views = {"key": row["__key__"], "height": size[0], "width": size[1]}
        if "embedding" in self._tasks or "seg" in self._tasks:
            views["stretched"] = _resize(pixels, SIZE)[0].numpy()
        if "normal" in self._tasks:
            height, width = fitting(*size)
            top, left = (SIZE[0] - height) // 2, (SIZE[1] - width) // 2
            padding = (left, SIZE[1] - width - left, top, SIZE[0] - height - top)
            views["padded"] = F.pad(_resize(pixels, (height, width)), padding)[0].numpy()
        return views


class Label:
    """The models of some tasks."""

    def __init__(self, models: str, tasks: list[str], output: str, maps: str) -> None:
        torch.set_num_threads(os.cpu_count() or 1)
        self._models = {
            task: getattr(transformers, MODELS[task]).from_pretrained(f"{models}/{task}").eval()
            for task in tasks
        }
        self._output = Path(output)
        self._size = fitting if maps == "frame" else lambda *size: size

    def __call__(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Embeddings as a column, masks and normals as files."""
        columns = {name: batch[name] for name in ("key", "height", "width")}
        sizes = list(zip(batch["height"].tolist(), batch["width"].tolist(), strict=True))
        with torch.inference_mode():
            for task, model in self._models.items():
                views = torch.from_numpy(batch["padded" if task == "normal" else "stretched"])
                outputs = model(pixel_values=(views.float() - _MEAN) / _STD)
                if task == "embedding":
                    vectors = F.normalize(outputs.last_hidden_state[:, 0], dim=1)
                    columns["embedding"] = vectors.to(torch.float16).numpy()
                else:
                    wanted = [self._size(*size) for size in sizes]
                    of_seg = task == "seg"
                    made = masks(outputs, wanted) if of_seg else normals(outputs, sizes, wanted)
                    self._write(task, batch["key"], made)
        return columns

    def _write(self, task: str, keys: Array, labels: list[Tensor]) -> None:
        (self._output / task).mkdir(parents=True, exist_ok=True)
        for key, label in zip(keys, labels, strict=True):
            np.save(self._output / task / f"{key}.npy", label.numpy())


def fitting(height: int, width: int) -> tuple[int, int]:
    """The largest size of a photo's shape within the models' input."""
    scale = min(SIZE[0] / height, SIZE[1] / width)
    return round(height * scale), round(width * scale)


Sizes = list[tuple[int, int]]


def masks(outputs: Any, wanted: Sizes) -> list[Tensor]:
    """Class maps of some sizes."""
    return [
        F.interpolate(logits[None], size, mode="bilinear")[0].argmax(0).to(torch.uint8)
        for logits, size in zip(outputs.logits, wanted, strict=True)
    ]


def normals(outputs: Any, sizes: Sizes, wanted: Sizes) -> list[Tensor]:
    """Unit vectors of photos of some sizes, padding removed."""
    found = []
    maps = F.normalize(outputs.normals, dim=1)
    for whole, size, target in zip(maps, sizes, wanted, strict=True):
        height, width = fitting(*size)
        top, left = (SIZE[0] - height) // 2, (SIZE[1] - width) // 2
        part = whole[None, :, top : top + height, left : left + width]
        found.append(F.interpolate(part, target, mode="bilinear")[0].to(torch.float16))
    return found


def _resize(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(pixels, size, mode="bilinear", antialias=True, align_corners=False)


def main() -> None:
    """Label a folder: `CORPUS OUTPUT MODELS MAPS TASK...`."""
    corpus, output, models, maps, *tasks = sys.argv[1:]
    ray.init(
        address="local", num_cpus=NUM_CPUS, num_gpus=1, include_dashboard=False,
        log_to_driver=False,
    )  # fmt: skip
    shards = sorted(str(path) for path in Path(corpus).iterdir())
    (
        ray.data.read_webdataset(shards, decoder=None)
        .map(Prepare(tasks).__call__)
        .map_batches(
            Label, fn_constructor_args=(models, tasks, output, maps), batch_size=BATCH_SIZE,
            num_gpus=1, compute=ray.data.ActorPoolStrategy(size=1),
        )
        .write_parquet(f"{output}/rows")
    )  # fmt: skip


if __name__ == "__main__":
    main()
