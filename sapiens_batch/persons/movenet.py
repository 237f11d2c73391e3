"""The bundled detector: MoveNet MultiPose, at most six persons an image, on the CPU.

Made for people who are at least a quarter of the image's height; crowds and far-away people need
another detector. Suppression and thresholds are left to `detector`. One image at a time, because
the graph takes no more: what is found never depends on neighbours.
"""

from __future__ import annotations

import hashlib
from importlib import resources

import cv2
import numpy as np

from sapiens_batch.images.decoded import DecodedImage
from sapiens_batch.persons.base import Detector
from sapiens_batch.persons.onnx_session import open_session
from sapiens_batch.records import Array

MOVENET = "movenet"
# The size that the model was made for; larger inputs find fewer persons, not more.
_LONG_SIDE = 256
_MULTIPLE_OF = 32
# Columns of the output after 17 keypoints: top, left, bottom, right, score.
_TOP, _LEFT, _BOTTOM, _RIGHT, _SCORE = range(51, 56)
# Changes with the code here that decides what the model sees.
_PREPROCESS_VERSION = "1"


class MoveNetDetector(Detector):
    """MoveNet MultiPose.

    Args:
        model: The ONNX file's bytes.
    """

    def __init__(self, model: bytes) -> None:
        self.digest = hashlib.sha256(_PREPROCESS_VERSION.encode() + model).hexdigest()
        self._session = open_session(model, MOVENET)
        self._input = self._session.get_inputs()[0].name

    def detect_one(self, image: DecodedImage) -> tuple[Array, Array]:
        """See `Detector.detect_one`."""
        canvas, content_height, content_width = _canvas(image.pixels)
        batch = canvas[None].astype(np.int32)  # (1, H, W, 3)
        (found,) = self._session.run(None, {self._input: batch})  # (1, 6, 56)
        fractions = found[0][:, [_LEFT, _TOP, _RIGHT, _BOTTOM]]
        scale_x = canvas.shape[1] / content_width * image.size[1]
        scale_y = canvas.shape[0] / content_height * image.size[0]
        corners = fractions * np.array([scale_x, scale_y, scale_x, scale_y])
        return corners.astype(np.float32), found[0][:, _SCORE]


def load_movenet() -> MoveNetDetector:
    """Load the bundled model.

    Raises:
        DependencyError: onnxruntime is not installed.
    """
    folder = resources.files("sapiens_batch.persons.models")
    return MoveNetDetector(folder.joinpath("movenet-multipose.onnx").read_bytes())


def _canvas(pixels: Array) -> tuple[Array, int, int]:
    """The image at the top left of a black canvas, with the size of what is shown on it."""
    height, width = pixels.shape[:2]
    scale = _LONG_SIDE / max(height, width)
    content = max(1, round(height * scale)), max(1, round(width * scale))
    filter_kind = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    resized = cv2.resize(pixels, content[::-1], interpolation=filter_kind)
    padded = [-(-side // _MULTIPLE_OF) * _MULTIPLE_OF for side in content]
    canvas = np.zeros((padded[0], padded[1], 3), np.uint8)
    canvas[: content[0], : content[1]] = resized
    return canvas, *content
