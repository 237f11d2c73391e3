"""Any object detection model of the transformers library, for example the reference's DETR.

From a folder, or from the model hub; on the CPU. Suppression is left to `detector`, how images are
prepared to the processor that was published with the model. Each image is searched alone: models
that pad a batch to its largest image would let neighbours change what is found.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sapiens_batch.errors import DependencyError, SpecError
from sapiens_batch.images.decoded import DecodedImage
from sapiens_batch.persons.base import Detector, named_person
from sapiens_batch.records import Array

_FILES = ("config.json", "preprocessor_config.json", "model*.safetensors*")


@dataclass(frozen=True)
class HubDetector(Detector):
    """A transformers model for object detection.

    Attributes:
        model: The model, in evaluation mode.
        processor: Its image processor.
        person_class: Number of the class `person`.
        digest: Digest of the files that they came from.
    """

    model: Any
    processor: Any
    person_class: int
    digest: str

    def detect_one(self, image: DecodedImage) -> tuple[Array, Array]:
        """See `Detector.detect_one`."""
        import torch

        with torch.inference_mode():
            outputs = self.model(**self.processor(images=image.pixels, return_tensors="pt"))
        (found,) = self.processor.post_process_object_detection(
            outputs, threshold=0.0, target_sizes=[image.size]
        )
        persons = found["labels"] == self.person_class
        corners = found["boxes"][persons].numpy().astype(np.float32)
        scores = found["scores"][persons].numpy().astype(np.float32)
        # the processor leaves out queries whose score is NaN
        unjudged = int((~outputs.logits.amax(dim=-1).isfinite()).sum())
        unknown = np.full((unjudged, 5), np.nan, np.float32)
        return np.concatenate([corners, unknown[:, :4]]), np.concatenate([scores, unknown[:, 4]])


def load_hub_detector(model: str, revision: str | None) -> HubDetector:
    """Load a model with its processor.

    Raises:
        DependencyError: transformers is not installed.
        SpecError: There is no such model, or it knows no class `person`.
    """
    try:
        from transformers import AutoImageProcessor, AutoModelForObjectDetection
    except ImportError as error:
        raise DependencyError(
            f"persons.detector.model: {model} needs transformers, which is not installed; install "
            "sapiens-batch[detect]"
        ) from error
    try:
        folder = _folder(model, revision)
        loaded = AutoModelForObjectDetection.from_pretrained(folder, use_safetensors=True).eval()
        # the same backend everywhere, so that boxes do not depend on what else is installed
        load_processor: Any = AutoImageProcessor.from_pretrained
        processor = load_processor(folder, backend="pil")
    except (OSError, ValueError, ImportError) as error:
        raise SpecError(
            f"persons.detector.model: {model} cannot be loaded as an object detection model "
            f"({error}); give `movenet`, a folder, or a hub id such as facebook/detr-resnet-101-dc5"
        ) from error
    name = f"persons.detector.model: {model}"
    return HubDetector(
        loaded, processor, named_person(loaded.config.id2label, name), _digest(folder)
    )


def _folder(model: str, revision: str | None) -> Path:
    path = Path(model).expanduser()
    if path.is_dir():
        return path
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(model, revision=revision, allow_patterns=list(_FILES)))


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(found for pattern in _FILES for found in folder.glob(pattern)):
        with path.open("rb") as file:
            digest.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
