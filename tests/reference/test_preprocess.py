"""Views equal the tensors that the published preprocessing makes of the same photos."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from sapiens_batch.images.decode import decode
from sapiens_batch.images.views import make_view
from sapiens_batch.records import CANVAS_STEPS, Array, Preprocess, ViewKind, ViewSpec
from sapiens_batch.samples.build import PHOTOS

SIZE = (128, 96)
MEAN = 255 * np.array([0.485, 0.456, 0.406], np.float32)
STD = 255 * np.array([0.229, 0.224, 0.225], np.float32)


@pytest.fixture(scope="module")
def port(references: Path) -> dict[str, Array]:
    """The port's pixel values as (N, H, W, 3) float32 grey levels."""
    tensors = load_file(references / "port" / "preprocess.safetensors")
    return {name: value.transpose(0, 2, 3, 1) * STD + MEAN for name, value in tensors.items()}


@pytest.fixture(scope="module")
def inputs(references: Path) -> dict[str, Any]:
    return dict(json.loads((references / "port" / "inputs.json").read_text()))


def photo(name: str) -> Array:
    return decode((PHOTOS / name).read_bytes()).pixels


@pytest.mark.parametrize("kind", [ViewKind.STRETCH, ViewKind.LETTERBOX])
def test_resized_views_equal_the_ports(
    kind: ViewKind, port: dict[str, Array], inputs: dict[str, Any]
) -> None:
    for name, expected in zip(inputs["files"], port[kind], strict=True):
        difference = np.abs(make_view(photo(name), ViewSpec(kind, *SIZE)).canvas - expected)
        assert difference.mean() <= 0.01
        assert difference.max() <= 1.001


def test_crops_equal_the_ports(port: dict[str, Array], inputs: dict[str, Any]) -> None:
    boxes = [
        (name, box)
        for name, of_photo in zip(inputs["files"], inputs["boxes_xywh"], strict=True)
        for box in of_photo
    ]
    for (name, box), expected in zip(boxes, port["crops"], strict=True):
        spec = ViewSpec(ViewKind.CROP, *SIZE)
        canvas = make_view(photo(name), spec, np.array(box, np.float32)).canvas
        difference = np.abs(canvas.astype(np.float32) / CANVAS_STEPS - expected)
        # half a step, and what positions in float32 cost the port at edges of the picture
        assert (difference <= 0.5 / CANVAS_STEPS + 0.005).mean() >= 0.999
        assert difference.max() <= 0.1


@pytest.mark.parametrize("name", ["down", "up", "outside", "up_outside"])
def test_crops_equal_the_originals(name: str, references: Path) -> None:
    folder = references / "original" / "crop_udp"
    expected = load_file(folder / "expected.safetensors")[f"crop_{name}"]
    canvas = original_crop(references, name, variant="")
    assert (np.abs(canvas.astype(int) - expected) <= 1).mean() >= 0.999


def test_first_generation_crops_stay_bilinear_where_they_enlarge(references: Path) -> None:
    folder = references / "original" / "crop_udp"
    expected = load_file(folder / "expected.safetensors")["crop_v1_up"]
    canvas = original_crop(references, "up", variant="v1")
    assert (np.abs(canvas.astype(int) - expected) <= 1).mean() >= 0.999


def original_crop(references: Path, name: str, *, variant: str) -> Array:
    case = json.loads((references / "original" / "crop_udp" / "case.json").read_text())
    left, top, right, bottom = case["boxes"][name]["box_xyxy"]
    box = np.array([left, top, right - left, bottom - top], np.float32)
    spec = ViewSpec(ViewKind.CROP, *SIZE, Preprocess.ORIGINAL, variant)
    return make_view(photo(case["photo"]), spec, box).canvas


@pytest.mark.parametrize(
    ("task", "kind", "variant"),
    [("seg", ViewKind.STRETCH, "seg"), ("normal", ViewKind.LETTERBOX, "")],
)
def test_resized_views_equal_the_originals(
    task: str, kind: ViewKind, variant: str, references: Path
) -> None:
    folder = references / "original" / "dense_preprocess"
    expected = load_file(folder / "expected.safetensors")
    regions = json.loads((folder / "case.json").read_text())["regions_of_portraits_rows_columns"]
    portraits = photo("portraits.jpg")
    images = {
        f"portraits_{name}": portraits[top:bottom, left:right]
        for name, (top, bottom, left, right) in regions.items()
    }
    images["astronaut_photo"] = photo("astronaut.jpg")
    spec = ViewSpec(kind, *SIZE, Preprocess.ORIGINAL, variant)
    for name, image in images.items():
        canvas = make_view(image, spec).canvas
        difference = np.abs(canvas.astype(int) - expected[f"{task}_{name}"])
        assert (difference <= 1).mean() >= 0.999, name
