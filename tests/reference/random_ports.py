"""Random small models of the transformers port, saved as people save them, with photos for them.

Draws follow from a number alone. Which of them are right is left to the tests.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sapiens_batch.records import Array

HEADS = {
    "pose": "Sapiens2ForPoseEstimation",
    "seg": "Sapiens2ForSemanticSegmentation",
    "normal": "Sapiens2ForNormalEstimation",
    "pointmap": "Sapiens2ForPointmapEstimation",
    "matting": "Sapiens2ForImageMatting",
}


@dataclass(frozen=True)
class Port:
    """A model of the port.

    Attributes:
        task: What its head is for.
        model: The model.
    """

    task: str
    model: Any


def draw(number: int, folder: Path, **changed: Any) -> Port:
    """Draw a model and save it with its processor, some settings other than drawn."""
    import transformers

    chance = np.random.default_rng(number)
    task = sorted(HEADS)[number % len(HEADS)]
    heads, layers = int(chance.choice([2, 4])), int(chance.integers(1, 5))
    patch = int(chance.choice([8, 14, 16]))
    # the port itself cannot norm a scale branch that comes down to one pixel
    size = [
        patch * int(chance.integers(5 if task == "pointmap" else 3, 8)),
        patch * int(chance.integers(2, 6)),
    ]
    yes = (chance.random(8) < 0.5).tolist()
    settings = {
        "hidden_size": heads * int(chance.choice([8, 12])),
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "intermediate_size": int(chance.choice([24, 32, 40])),
        "num_key_value_heads_per_layer": [
            int(chance.choice([one for one in (1, 2, 4) if one <= heads])) for _ in range(layers)
        ],
        "num_register_tokens": int(chance.choice([0, 1, 4, 8])),
        "patch_size": patch,
        "image_size": size,
        "rms_norm_eps": float(chance.choice([1e-6, 1e-5, 1e-2])),
        "rope_theta": float(chance.choice([100.0, 10.0, 10_000.0])),
        "hidden_act": str(chance.choice(["silu", "gelu", "relu", "gelu_pytorch_tanh"])),
        "use_gated_mlp": yes[0], "use_qk_norm": yes[1], "use_mask_token": yes[2],
        "query_bias": yes[3], "key_bias": yes[4], "value_bias": yes[5], "proj_bias": yes[6],
        "mlp_bias": yes[7],
        "layerscale_value": 0.7, "initializer_range": 0.15,
        "num_labels": {"pose": 17, "seg": 11, "matting": 4}.get(task, 3),
        "head_config": _head(task, chance),
    }  # fmt: skip
    head_config = settings["head_config"]
    for name, value in changed.items():
        (head_config if name.endswith("kernel_sizes") else settings)[name] = value
    if len(head_config["conv_out_channels"]) < len(head_config.get("conv_kernel_sizes", [])):
        head_config["conv_kernel_sizes"].pop()
    torch.manual_seed(number)
    model = getattr(transformers, HEADS[task])(transformers.Sapiens2Config(**settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
        if task == "pointmap":  # a scale has no meaning unless it is positive
            model.scale_head.predictor.proj.bias.fill_(2.0)
    model.save_pretrained(folder)
    processor = {
        "image_processor_type": "Sapiens2ImageProcessor",
        "size": {"height": size[0], "width": size[1]},
        "image_mean": chance.uniform(0.3, 0.6, 3).round(3).tolist(),
        "image_std": chance.uniform(0.2, 0.4, 3).round(3).tolist(),
        "do_pad": task in ("normal", "pointmap"),
        "do_resize": True, "do_rescale": True, "do_normalize": True, "resample": 2,
        "rescale_factor": 1 / 255, "keypoint_heatmap_downscale_factor": 4,
        "keypoint_heatmap_sigma": 6.0, "data_format": "channels_first",
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return Port(task, model)


def _head(task: str, chance: np.random.Generator) -> dict[str, Any]:
    widths = chance.integers(6, 17, 4).tolist()
    convs = chance.integers(5, 11, int(chance.integers(1, 3))).tolist()
    if task in ("pose", "seg"):
        return {"upsample_out_channels": widths[: 2 if task == "pose" else 4],
                "conv_out_channels": convs}  # fmt: skip
    shuffle = {
        "use_pixel_shuffle": True,
        "upsample_out_channels": widths,
        "upsample_kernel_sizes": [3] * 4,
        "conv_out_channels": convs,
        "conv_kernel_sizes": [3] * len(convs),
    }
    if task == "pointmap":
        shuffle |= {"scale_conv_out_channels": [12, 6], "scale_final_hidden_sizes": [8, 5]}
    return shuffle


def photo(number: int) -> tuple[Array, list[list[float]]]:
    """A smooth picture of odd shape, and odd boxes: small ones, large ones, some half outside."""
    chance = np.random.default_rng(1000 + number)
    height, width = chance.integers(20, 400, 2).tolist()
    coarse = chance.integers(0, 256, (6, 5, 3)).astype(np.float32)
    tall = np.linspace(0, 5, height)[:, None] - np.arange(6)
    wide = np.linspace(0, 4, width)[:, None] - np.arange(5)
    down, across = (np.clip(1 - np.abs(far), 0, None) for far in (tall, wide))
    smooth = np.einsum("hy,wx,yxc->hwc", down, across, coarse)
    noisy = np.clip(smooth + chance.normal(0, 12, smooth.shape), 0, 255).astype(np.uint8)
    boxes = []
    for _ in range(3):
        w, h = chance.uniform(4, 1.2 * width), chance.uniform(4, 1.2 * height)
        left, top = chance.uniform(-w / 2, width - w / 2), chance.uniform(-h / 2, height - h / 2)
        boxes.append([round(left, 2), round(top, 2), round(w, 2), round(h, 2)])
    return noisy, boxes
