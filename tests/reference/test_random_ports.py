"""Labels of random models of the port equal what the port says, whatever its configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (the name that torch's own documentation uses)

from sapiens_batch.errors import WeightsError
from sapiens_batch.images.views import make_view
from sapiens_batch.labeler import ImageLabels, Labeler
from sapiens_batch.labeler.forward import PixelNormaliser
from sapiens_batch.models.weights import load_encoder, load_head, resolve_checkpoint
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.tasks import TASKS
from tests.reference.random_ports import Port, draw, photo
from tests.reference.test_live_port import raw_maps

pytest.importorskip("transformers")
CPU = torch.device("cpu")
DRAWS = 60


@pytest.mark.parametrize("number", range(DRAWS))
def test_a_random_port_and_a_photo_are_labeled_as_it_labels_them(
    number: int, tmp_path: Path
) -> None:
    port = draw(number, tmp_path)
    image, boxes = photo(number)
    spec = TaskSpec(checkpoint=str(tmp_path), dtype="float32")
    checkpoint = resolve_checkpoint(str(tmp_path))
    view_spec = TASKS[port.task](spec, checkpoint).view_spec
    views = [make_view(image, view_spec, np.float32(box)) for box in boxes[: _views_of(port)]]
    if port.task != "pose":
        views = [make_view(image, view_spec)]
    normalise = PixelNormaliser(
        CPU, torch.float32,
        mean=checkpoint.config.pixel_mean, std=checkpoint.config.pixel_std,
    )  # fmt: skip
    pixels = normalise(np.stack([view.canvas for view in views]))
    expected = run(port, pixels)
    encoder = load_encoder(checkpoint, rope_dtype="float32", device=CPU, dtype=torch.float32)
    head = load_head(checkpoint, device=CPU, dtype=torch.float32)
    with torch.inference_mode():
        encoding = encoder(pixels)
        output = head(encoding.features)
        tokens = port.model.model(pixels).last_hidden_state
    torch.testing.assert_close(encoding.tokens, tokens, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(output.maps, raw_maps(expected), rtol=1e-4, atol=1e-4)
    labeler = Labeler.load(
        {port.task: spec}, device="cpu", accept_licences=["sapiens2"], batch_views=2
    )
    (labels,) = labeler.label_images([image], [boxes])
    assert labels.labels[port.task].problems[0] is None
    COMPARE[port.task](port, labels, expected, pixels, image)


def _views_of(port: Port) -> int:
    return 3 if port.task == "pose" else 1


def run(port: Port, pixels: Tensor) -> Any:
    with torch.inference_mode():
        return port.model(pixels)


def on_frame(port: Port, labels: ImageLabels) -> np.ndarray:
    frame, array = labels.labels[port.task].frames[0], labels.labels[port.task].array
    return array[0][..., : frame.height, : frame.width]


def masks(port: Port, labels: ImageLabels, expected: Any, *_: Any) -> None:
    found = on_frame(port, labels)
    wanted = resized(expected.logits, found.shape).argmax(1)[0]
    assert (found == wanted.numpy()).mean() >= 0.9999


def normals(port: Port, labels: ImageLabels, expected: Any, *_: Any) -> None:
    wanted = F.normalize(unpadded(port, expected.normals, labels), dim=0, eps=1e-8).numpy()
    assert np.abs(on_frame(port, labels) - wanted).max() <= 2e-4


def points(port: Port, labels: ImageLabels, expected: Any, *_: Any) -> None:
    metric = expected.pointmaps / expected.scales[:, :, None, None]
    wanted = unpadded(port, metric, labels).numpy()
    assert np.abs(on_frame(port, labels) - wanted).max() <= 1e-4 * np.ptp(wanted)


def mattes(port: Port, labels: ImageLabels, expected: Any, *_: Any) -> None:
    found = on_frame(port, labels)
    wanted = resized(raw_maps(expected), found.shape[-2:]).clamp(0, 1)[0].numpy()
    assert np.abs(found - wanted).max() <= 1e-4


def resized(maps: Tensor, size: tuple[int, ...]) -> Tensor:
    """As the port's post-processing brings maps to another size."""
    return F.interpolate(maps, size=size, mode="bilinear", align_corners=False)


def unpadded(port: Port, maps: Tensor, labels: ImageLabels) -> Tensor:
    """The part of (1, K, h, w) maps that is not padding, as the port cuts it out.

    Where a head's maps have another size than the model's input they come to it first; the port
    would cut out another place.
    """
    from transformers.image_utils import get_image_size_for_max_height_width

    height, width = port.model.config.image_size
    maps = resized(maps, (height, width))
    rows, columns = get_image_size_for_max_height_width(labels.size, height, width)
    rows, columns = min(rows, height), min(columns, width)
    top, left = (height - rows) // 2, (width - columns) // 2
    return maps[0, :, top : top + rows, left : left + columns]


def keypoints(
    port: Port, labels: ImageLabels, expected: Any, pixels: Tensor, _: np.ndarray
) -> None:
    wanted = decoded(expected.heatmaps, labels.boxes)
    noise = 1e-6 * torch.randn((3, *pixels.shape), generator=torch.Generator().manual_seed(3))
    moved = [decoded(run(port, pixels + some).heatmaps, labels.boxes) for some in noise]
    found = labels.column("pose", "keypoints")
    height, width = pixels.shape[-2:]
    per_source = width / sides(labels.boxes, height / width)[:, :1]
    steady = np.linalg.norm(wanted - np.stack(moved), axis=-1).max(0) * per_source < 0.01
    far = np.linalg.norm(found - wanted, axis=-1) * per_source
    # missing where nothing is positive, which the port gives a place of its own
    present = np.isfinite(found).all(-1)
    assert (far[steady & present] <= 0.01).all()
    assert steady.mean() > 0.5


@pytest.mark.parametrize("number", [3, 8, 13, 18, 23, 28])
def test_keypoints_from_the_photo_on_are_those_of_the_port(number: int, tmp_path: Path) -> None:
    """With the port's own crops, in float32, instead of ours."""
    port = draw(number, tmp_path)
    image, boxes = photo(number)
    assert port.task == "pose"
    spec = TaskSpec(checkpoint=str(tmp_path))
    labeler = Labeler.load({"pose": spec}, device="cpu", accept_licences=["sapiens2"])
    (labels,) = labeler.label_images([image], [boxes])
    stated = json.loads((tmp_path / "preprocessor_config.json").read_text())
    mean, std = (torch.tensor(stated[name])[:, None, None] for name in ("image_mean", "image_std"))
    crops = port_crops(image, labels.boxes, tuple(port.model.config.image_size))
    wanted = decoded(run(port, (crops / 255 - mean) / std).heatmaps, labels.boxes)
    height, width = port.model.config.image_size
    per_source = width / sides(labels.boxes, height / width)[:, :1]
    far = np.linalg.norm(labels.column("pose", "keypoints") - wanted, axis=-1) * per_source
    # rounding to a sixty-fourth of a level is more noise than these models are steady under
    assert np.nanmedian(far) <= 1e-3
    assert np.nanmean(far > 0.01) <= 0.1


def port_crops(image: np.ndarray, boxes: np.ndarray, size: tuple[int, int]) -> Tensor:
    """(P, 3, height, width) grey levels, as the port samples crops."""
    height, width = size
    side, corner = sides(boxes, height / width), corners(boxes, height / width)
    crops = []
    for (wide, high), (left, top) in zip(side.tolist(), corner.tolist(), strict=True):
        scale_x, scale_y = (width - 1) / wide, (height - 1) / high
        x = torch.arange(width) / scale_x + left
        y = torch.arange(height) / scale_y + top
        grid = torch.stack(
            [
                (2 * x / (image.shape[1] - 1) - 1).expand(height, -1),
                (2 * y / (image.shape[0] - 1) - 1)[:, None].expand(-1, width),
            ],
            dim=-1,
        )
        mode = "bilinear" if min(scale_x, scale_y) < 1 else "bicubic"
        pixels = torch.tensor(image).permute(2, 0, 1)[None].float()
        crops.append(F.grid_sample(pixels, grid[None].float(), mode, align_corners=True))
    return torch.cat(crops)


def decoded(heatmaps: Tensor, boxes: np.ndarray) -> np.ndarray:
    """Keypoints (P, K, 2) in source pixels as the port's post-processing has them, in float64."""
    P, K, h, w = heatmaps.shape
    taps = torch.exp(-0.5 * (torch.arange(-5, 6).double() / 2.0) ** 2)
    kernel = torch.outer(taps, taps) / taps.sum() ** 2
    maps = heatmaps.double().view(P * K, 1, h, w)
    blurred = F.conv2d(maps, kernel[None, None], padding=5)
    gain = maps.amax((2, 3)) / blurred.amax((2, 3))
    gain = torch.where(blurred.amax((2, 3)) > 0, gain, 1.0)[..., None, None]
    logs = F.pad((blurred * gain).clamp(1e-3, 50.0).log(), (1, 1, 1, 1), mode="replicate")[:, 0]
    peak = maps.flatten(1).argmax(1)
    y, x = peak // w + 1, peak % w + 1
    at = {(j, i): logs[torch.arange(P * K), y + j, x + i] for j in (-1, 0, 1) for i in (-1, 0, 1)}
    dx, dy = (at[0, 1] - at[0, -1]) / 2, (at[1, 0] - at[-1, 0]) / 2
    eps = torch.finfo(torch.float32).eps
    dxx = at[0, 1] - 2 * at[0, 0] + at[0, -1] + eps
    dyy = at[1, 0] - 2 * at[0, 0] + at[-1, 0] + eps
    cross = at[1, 1] - at[0, 1] - at[1, 0] + 2 * at[0, 0] - at[0, -1] - at[-1, 0] + at[-1, -1]
    dxy = cross / 2
    step = torch.stack([dyy * dx - dxy * dy, dxx * dy - dxy * dx], -1)
    places = torch.stack([x - 1, y - 1], -1) - step / (dxx * dyy - dxy**2)[:, None]
    places = places.view(P, K, 2).numpy() / (w - 1, h - 1)
    return places * sides(boxes, h / w)[:, None] + corners(boxes, h / w)[:, None]


def sides(boxes: np.ndarray, tall: float) -> np.ndarray:
    """(P, 2) width and height of the port's crops, `tall` times as high as wide."""
    wide, high = 1.25 * boxes[:, 2], 1.25 * boxes[:, 3]
    return np.stack([np.maximum(wide, high / tall), np.maximum(wide * tall, high)], 1)


def corners(boxes: np.ndarray, tall: float) -> np.ndarray:
    """(P, 2) left top of the port's crops."""
    return boxes[:, :2] + boxes[:, 2:] / 2 - sides(boxes, tall) / 2


COMPARE = {
    "pose": keypoints, "seg": masks, "normal": normals, "pointmap": points, "matting": mattes
}  # fmt: skip


@pytest.mark.parametrize(
    ("number", "settings", "match"),
    [
        (4, {"hidden_act": "quick_gelu"}, 'hidden_act is "quick_gelu": only'),
        (4, {"num_channels": 4}, "tensors .* projection.weight|num_channels|the tensors"),
        (4, {"conv_kernel_sizes": [3, 3]}, r"misshaped decode_head\.conv_layers\.0\.weight"),
        (2, {"scale_conv_kernel_sizes": [3, 3]}, r"misshaped decode_head\.scale_conv_layers\.0"),
    ],
)  # fmt: skip
def test_what_a_port_has_and_we_have_not_is_refused_by_name(
    number: int, settings: dict[str, Any], match: str, tmp_path: Path
) -> None:
    draw(number, tmp_path, **settings)
    with pytest.raises(WeightsError, match=match):
        resolve_checkpoint(str(tmp_path))
