"""Our labeler against the transformers model and its image processor, task by task.

`OMP_NUM_THREADS=1 python benchmarks/labeler.py [--rounds N] [--device cuda] [--dtype bfloat16]`.
Both sides have the same random weights and see the same image, in turns, in one run. Times are CPU
seconds of the process on a CPU, so that other programs on the machine count little, and wall time
on a GPU. Post-processing is measured at the released sizes on synthetic maps that look like those
of a trained model, everything else on a small encoder with half-width heads. Both sides give labels
of the size that we store (the frame). The processor needs torchvision.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from sapiens_batch.images.geometry import crop_map, frame_for, letterbox, stretch_map
from sapiens_batch.labeler import Labeler, describe
from sapiens_batch.labeler.forward import PixelNormaliser
from sapiens_batch.models.encoder import Encoding
from sapiens_batch.models.heads import HeadOutput
from sapiens_batch.records import Array, Region, ViewBatch, ViewKind, ViewSpec
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.tasks.base import Outputs, Task

SIZE = (512, 384)
RELEASED_SIZE = (1024, 768)
PHOTO = (853, 1280)
BOX = [300.0, 100.0, 420.0, 700.0]
DECONV = {"pose": ([512, 384], [256, 256, 128]), "seg": ([256, 128, 64, 32], [32, 32])}
PARTS = ("forward", "post, 3:4 photo", "post, 3:2 photo", "all")
SHUFFLE = [384, 256, 128, 64]
CLASSES = {
    "pose": ("Sapiens2ForPoseEstimation", 308),
    "seg": ("Sapiens2ForSemanticSegmentation", 29),
    "normal": ("Sapiens2ForNormalEstimation", 3),
    "pointmap": ("Sapiens2ForPointmapEstimation", 3),
    "matting": ("Sapiens2ForImageMatting", 4),
}


def compare(
    ours: Callable[[], object], theirs: Callable[[], object], rounds: int, clock: Any
) -> str:
    """Milliseconds of both and how many times faster ours is, best of some rounds in turns."""
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for index, work in enumerate((ours, theirs)):
            start = clock()
            work()
            best[index] = min(best[index], clock() - start)
    return f"{1e3 * best[0]:.0f} | {1e3 * best[1]:.0f} | {best[1] / best[0]:.2f}"


def port_model(task: str, folder: Path) -> Any:
    """A model of the port with random weights, saved where ours finds it."""
    head: dict[str, Any] = {
        "use_pixel_shuffle": True,
        "upsample_out_channels": SHUFFLE,
        "upsample_kernel_sizes": [3] * 4,
        "conv_out_channels": [32, 16, 8],
        "conv_kernel_sizes": [3] * 3,
    }
    if task in DECONV:
        head = dict(zip(("upsample_out_channels", "conv_out_channels"), DECONV[task], strict=True))
    if task == "pointmap":
        head |= {"scale_conv_out_channels": [96, 32], "scale_final_hidden_sizes": [32, 16]}
    name, outputs = CLASSES[task]
    config = transformers.Sapiens2Config(
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=18,
        num_attention_heads=4,
        num_key_value_attention_heads=2,
        image_size=list(SIZE),
        head_config=head,
        num_labels=outputs,
    )
    torch.manual_seed(0)
    model = getattr(transformers, name)(config).eval()
    if task == "pointmap":
        # untrained scales are near 0, where metric points are infinite
        last = [
            p for n, p in model.named_parameters() if n.endswith("proj.bias") and p.numel() == 1
        ]
        last[0].data.fill_(1.0)
    model.save_pretrained(folder)
    return model


def port_processor(task: str, size: tuple[int, int]) -> Any:
    """The port's image processor for a task."""
    from transformers.models.sapiens2.image_processing_sapiens2 import Sapiens2ImageProcessor

    return Sapiens2ImageProcessor(
        size={"height": size[0], "width": size[1]}, do_pad=task in ("normal", "pointmap")
    )


def port_labels(
    task: str, processor: Any, outputs: Any, shape: tuple[int, int], frame: tuple[int, int]
) -> object:
    """The port's post-processing of a photo of a shape to labels of the frame's size."""
    if task == "pose":
        return processor.post_process_pose_estimation(outputs, boxes=[[BOX]])
    if task == "seg":
        return processor.post_process_semantic_segmentation(outputs, target_sizes=[frame])
    if task == "normal":
        return processor.post_process_normal_estimation(
            outputs, source_sizes=[shape], target_sizes=[frame]
        )
    if task == "pointmap":
        return processor.post_process_pointmap_estimation(
            outputs, source_sizes=[shape], target_sizes=[frame]
        )
    return processor.post_process_image_matting(outputs, target_sizes=[frame])


def trained_looking_maps(task: str) -> Tensor:
    """Raw maps of the released size with the smoothness of a trained model's."""
    generator = torch.Generator().manual_seed(0)
    if task == "pose":
        rows, columns = torch.arange(256.0)[:, None], torch.arange(192.0)
        centres = (
            torch.rand(308, 2, 1, 1, generator=generator)
            * torch.tensor([192.0, 256.0])[:, None, None]
        )
        squares = (columns - centres[:, 0]) ** 2 + (rows - centres[:, 1]) ** 2
        noise = 1e-3 * torch.randn(308, 256, 192, generator=generator)
        return (0.9 * torch.exp(-squares / 72) + noise)[None]
    outputs = CLASSES[task][1]
    coarse = torch.randn(1, outputs, 16, 12, generator=generator)
    maps = F.interpolate(coarse, size=RELEASED_SIZE, mode="bicubic")
    return maps.sigmoid() if task == "matting" else maps


def view_of_photo(spec: ViewSpec, shape: tuple[int, int]) -> ViewBatch:
    """A view of a photo of a (height, width), without pixels."""
    size = (spec.height, spec.width)
    region, affine = Region(0, 0, *size), stretch_map(shape, size)
    if spec.kind is ViewKind.LETTERBOX:
        region, affine = letterbox(shape, size)
    if spec.kind is ViewKind.CROP:
        affine = crop_map(BOX, size)
    canvases = np.zeros((1, *size, 3), spec.canvas_dtype)
    return ViewBatch(spec, canvases, (affine,), (region,), (shape,), (0,))


def decoding(task: Task, shape: tuple[int, int], rounds: int, clock: Any) -> str:
    """Post-processing alone at the released sizes, of a photo of a shape."""
    config = replace(task.checkpoint.config, image_size=RELEASED_SIZE)
    large = type(task)(task.spec, replace(task.checkpoint, config=config))
    maps = trained_looking_maps(task.name)
    scale = torch.tensor([[1.2]]) if task.name == "pointmap" else None
    views = view_of_photo(large.view_spec, shape)
    ours = Outputs(Encoding(torch.zeros(1, 1, 1), (1, 1)), HeadOutput(maps, scale))
    theirs = SimpleNamespace(
        heatmaps=maps, logits=maps, normals=maps, pointmaps=maps, scales=scale,
        foregrounds=maps[:, :3], alphas=maps[:, 3:],
    )  # fmt: skip
    frame = frame_for(shape, RELEASED_SIZE)
    processor = port_processor(task.name, RELEASED_SIZE)
    return compare(
        lambda: large.decode(ours, views),
        lambda: port_labels(task.name, processor, theirs, shape, (frame.height, frame.width)),
        rounds,
        clock,
    )


def whole(
    task: Task, model: Any, folder: Path, arguments: argparse.Namespace, clock: Any
) -> list[str]:
    """Forward pass alone, and from pixels to labels."""
    labeler = Labeler.load(
        {task.name: str(folder)},
        device=arguments.device,
        dtype=arguments.dtype,
        accept_licences=["sapiens2"],
    )
    dtype = getattr(torch, arguments.dtype)
    model = model.to(arguments.device, dtype)
    coarse = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    photo = torch.tensor(coarse).permute(2, 0, 1)[None].float()
    photo = F.interpolate(photo, size=PHOTO, mode="bicubic").clamp(0, 255).byte()[0]
    pixels: Array = photo.permute(1, 2, 0).contiguous().numpy()
    processor = port_processor(task.name, SIZE)
    frame = frame_for(PHOTO, SIZE)
    boxes = {"boxes": [[BOX]]} if task.name == "pose" else {}
    (group,) = labeler._groups
    canvas = np.random.default_rng(0).integers(0, 256, (1, *SIZE, 3), np.uint8)
    normalised = PixelNormaliser(torch.device(arguments.device), dtype)(canvas)
    plain = normalised.contiguous()

    def theirs() -> object:
        inputs = processor(photo, return_tensors="pt", **boxes)
        outputs = model(inputs["pixel_values"].to(arguments.device, dtype))
        return port_labels(task.name, processor, outputs, PHOTO, (frame.height, frame.width))

    forward = compare(
        lambda: group.run_head(group.tasks[0], group.encode(normalised)),
        lambda: model(plain),
        arguments.rounds,
        clock,
    )
    given = [[BOX]] if task.name == "pose" else None
    end = compare(lambda: labeler.label_images([pixels], given), theirs, arguments.rounds, clock)
    return [forward, end]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--tasks", nargs="+", default=list(CLASSES), choices=list(CLASSES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    clock = time.process_time if arguments.device == "cpu" else time.perf_counter
    print("| task, ms | " + " | ".join(f"{part} ours | port | ratio" for part in PARTS) + " |")
    for name in arguments.tasks:
        with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
            model = port_model(name, Path(folder))
            spec = TaskSpec(checkpoint=folder)
            task = describe({name: spec}, accepted=["sapiens2"])[name]
            forward, end = whole(task, model, Path(folder), arguments, clock)
            post = [
                decoding(task, shape, arguments.rounds, time.process_time)
                for shape in ((1600, 1200), PHOTO)
            ]
        print("| " + " | ".join((name, forward, *post, end)) + " |", flush=True)


if __name__ == "__main__":
    main()
