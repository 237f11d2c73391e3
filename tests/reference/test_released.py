"""Published values of released weights; skipped where the weights cannot be had.

They are those of the port's integration tests: COCO val 000000004016 and the 0.4b models. Run with
the weights in the local hub cache (or a hub in reach) and the photo under `shared/photos`:
`SAPIENS_BATCH_ACCEPT_LICENCES=sapiens2 SAPIENS_BATCH_TEST_HUB=1 pytest -m hub`.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from sapiens_batch.errors import WeightsError
from sapiens_batch.images.decode import decode
from sapiens_batch.images.views import make_view
from sapiens_batch.labeler import Labeler
from sapiens_batch.models.weights import Checkpoint, load_encoder, load_head, resolve_checkpoint
from sapiens_batch.records import ViewKind, ViewSpec

pytestmark = pytest.mark.hub

PHOTO = "coco2014_000000004016.jpg"
BOX = [270.80630, 0.57221174, 294.09006, 379.46970]
CPU = torch.device("cpu")
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)


@pytest.fixture(scope="module")
def photo(shared: Path) -> bytes:
    path = shared / "photos" / PHOTO
    if not path.is_file():
        pytest.skip(f"{path} is missing: put COCO val 000000004016 there")
    return path.read_bytes()


def released(task: str) -> Checkpoint:
    if os.environ.get("SAPIENS_BATCH_TEST_HUB") != "1":
        pytest.skip("set SAPIENS_BATCH_TEST_HUB=1 where released weights can be had")
    try:
        return resolve_checkpoint(f"facebook/sapiens2-{task}-0.4b")
    except WeightsError as error:
        pytest.skip(str(error))


def pixels(photo: bytes, kind: ViewKind) -> torch.Tensor:
    canvas = make_view(decode(photo), ViewSpec(kind, 1024, 768)).canvas
    image = torch.tensor(canvas).permute(2, 0, 1)[None].float() / 255
    return (image - MEAN) / STD


def raw(checkpoint: Checkpoint, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    encoder = load_encoder(checkpoint, rope_dtype="float32", device=CPU, dtype=torch.float32)
    head = load_head(checkpoint, device=CPU, dtype=torch.float32)
    with torch.inference_mode():
        output = head(encoder(image).features)
    return output.maps, output.scale


def test_tokens_of_the_pretrained_encoder(photo: bytes) -> None:
    checkpoint = released("pretrain")
    encoder = load_encoder(checkpoint, rope_dtype="float32", device=CPU, dtype=torch.float32)
    with torch.inference_mode():
        tokens = encoder(pixels(photo, ViewKind.STRETCH)).tokens[0]
    expected = torch.tensor(
        [
            [-0.09233, -0.00107, -0.12215, 0.07374, -0.03773],
            [0.08412, 0.04387, 0.05709, -0.04962, 0.03715],
            [0.14232, -0.11947, -0.05910, -0.09457, -0.11410],
        ]
    )
    torch.testing.assert_close(tokens[[0, 1, 9], :5], expected, rtol=1e-2, atol=1e-2)


def test_keypoints(photo: bytes) -> None:
    checkpoint = released("pose")
    labeler = Labeler.load({"pose": checkpoint.id}, device="cpu", accept_licences=["sapiens2"])
    (labels,) = labeler.label_images([photo], [[BOX]])
    expected = [[364.339, 97.925], [373.251, 80.977], [353.211, 83.390]]
    found = labels.column("pose", "keypoints")[0, :3]
    np.testing.assert_allclose(found, expected, atol=0.2)
    scores = labels.column("pose", "keypoint_scores")[0, :3]
    np.testing.assert_allclose(scores, [1.00074, 0.99874, 1.00152], atol=1e-2)


def test_class_logits(photo: bytes) -> None:
    maps, _ = raw(released("seg"), pixels(photo, ViewKind.STRETCH))
    expected = torch.tensor(
        [[3.4526, 5.55483, 6.57901], [5.71913, 7.2142, 8.11209], [6.82645, 7.98208, 8.31385]]
    )
    torch.testing.assert_close(maps[0, 0, :3, :3], expected, rtol=1e-2, atol=1e-2)


def test_raw_normals(photo: bytes) -> None:
    maps, _ = raw(released("normal"), pixels(photo, ViewKind.LETTERBOX))
    expected = torch.tensor(
        [[0.9577, 1.8808, 0.9826], [1.6904, 1.7351, 1.912], [2.4828, 1.9887, 2.5168]]
    )
    torch.testing.assert_close(maps[0, 0, :3, :3], expected, rtol=1e-2, atol=1e-2)


def test_raw_points_and_their_scale(photo: bytes) -> None:
    maps, scale = raw(released("pointmap"), pixels(photo, ViewKind.LETTERBOX))
    torch.testing.assert_close(scale, torch.tensor([[0.9931]]), rtol=1e-2, atol=1e-2)
    expected = torch.tensor([-0.0096, -0.0567, -0.0460])
    torch.testing.assert_close(maps[0, 0, 0, :3], expected, rtol=1e-2, atol=1e-2)
