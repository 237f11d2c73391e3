"""What a label task is: the view it needs, the labels it gives, and decoding between the two.

A task is made from a job's settings and a resolved checkpoint and holds no weights, so a driver can
ask for schemas and views without an accelerator. Running encoders and heads is left to `labeler`.
Decoding happens on the device of the raw outputs; only narrowed labels reach the host, and the
labels of a view depend on that view alone (invariant I7).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from sapiens_batch.errors import SpecError, WeightsError
from sapiens_batch.job.spec import TaskSpec
from sapiens_batch.models.configs import HeadKind
from sapiens_batch.models.demo import DEMO_WARNING
from sapiens_batch.models.encoder import Encoding
from sapiens_batch.models.heads import HeadOutput
from sapiens_batch.models.weights import Checkpoint
from sapiens_batch.records import (
    Array,
    ArrayField,
    ColumnField,
    LabelSchema,
    Level,
    Preprocess,
    TaskLabels,
    TaskName,
    ViewBatch,
    ViewKind,
    ViewSpec,
)

NON_FINITE = "label.non_finite"
"""Reason of a problem: the model gave NaN or infinity where a label should be."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """What the models say about the views of a batch.

    Attributes:
        encoding: The encoder's tokens.
        head: The head's raw maps, None for tasks without a head.
    """

    encoding: Encoding
    head: HeadOutput | None

    @property
    def maps(self) -> Tensor:
        """(n, K, h, w) raw maps of the head."""
        assert self.head is not None, "only tasks with a head ask for maps"
        return self.head.maps


class Task(ABC):
    """A label task with its settings.

    Args:
        spec: The task's section of the job.
        checkpoint: The resolved weights that `spec.checkpoint` names.

    Raises:
        SpecError: When the settings ask for what the task cannot do.
        WeightsError: When the checkpoint has no head for this task.
    """

    name: ClassVar[TaskName]
    level: ClassVar[Level]
    view_kind: ClassVar[ViewKind]
    head: ClassVar[HeadKind | None]
    can_flip: ClassVar[bool] = False
    original_variant: ClassVar[str] = ""

    def __init__(self, spec: TaskSpec, checkpoint: Checkpoint) -> None:
        self.spec = spec
        self.checkpoint = checkpoint
        self._check_head()
        if spec.flip_test and not self.can_flip:
            raise SpecError(f"tasks.{self.name}.flip_test: true, but {self.name} has no flip test")

    @property
    def view_spec(self) -> ViewSpec:
        """The model input that the task needs."""
        height, width = self.checkpoint.config.image_size
        original = self.spec.preprocess is Preprocess.ORIGINAL
        variant = self.original_variant if original else ""
        return ViewSpec(self.view_kind, height, width, self.spec.preprocess, variant)

    @property
    def stages(self) -> tuple[int, ...]:
        """Numbers of encoder layers after which the task needs tokens, besides the last."""
        return ()

    @property
    def schema(self) -> LabelSchema:
        """Columns, array and metadata of the labels."""
        return LabelSchema(self.name, self.level, self.columns, self.array, self._metadata())

    @property
    @abstractmethod
    def columns(self) -> tuple[ColumnField, ...]:
        """Label columns."""

    @property
    def array(self) -> ArrayField | None:
        """The dense array, None for tasks that only fill columns."""
        return None

    @property
    def vocabulary(self) -> Mapping[str, Any]:
        """What the label's numbers stand for: JSON values for the schema's metadata."""
        return {}

    @abstractmethod
    def decode(self, outputs: Outputs, views: ViewBatch) -> TaskLabels:
        """Labels of a batch, on the host.

        Args:
            outputs: Raw outputs for the n views, float32.
            views: The views, without need of their canvases.
        """

    def merge_mirrored(self, output: HeadOutput, mirrored: HeadOutput) -> HeadOutput:
        """Average raw maps with those of the mirrored views, mirrored back.

        Args:
            output: Raw maps of the views.
            mirrored: Raw maps of the same views mirrored left to right.
        """
        raise NotImplementedError(f"{self.name} has no flip test")

    def join(self, parts: Sequence[TaskLabels]) -> TaskLabels:
        """Labels of consecutive batches as one; no parts give labels of zero rows."""
        if len(parts) == 1:
            return parts[0]
        fields = {field.name: field for field in self.columns}
        columns = {
            name: _stack([part.columns[name] for part in parts], field.shape, field.dtype)
            for name, field in fields.items()
        }
        array = None
        if self.array is not None:
            rows = [part.array for part in parts if part.array is not None]
            array = _stack(rows, self.array.row_shape, self.array.dtype)
        frames = tuple(frame for part in parts for frame in part.frames)
        problems = tuple(problem for part in parts for problem in part.problems)
        return TaskLabels(columns, array, frames, problems)

    def _check_head(self) -> None:
        found = self.checkpoint.config.head
        if self.head is None or (found is not None and found.kind == self.head):
            return
        has = "an encoder without a head" if found is None else f"a {found.kind} model"
        raise WeightsError(
            f"tasks.{self.name}.checkpoint: {self.checkpoint.id} is {has}; give weights with a "
            f"{self.head} head"
        )

    def _metadata(self) -> dict[str, Any]:
        checkpoint, config = self.checkpoint, self.checkpoint.config
        metadata: dict[str, Any] = {
            "model": checkpoint.id,
            "revision": checkpoint.revision,
            "weights_sha256": checkpoint.weights_sha256,
            "encoder_sha256": checkpoint.encoder_sha256,
            "architecture": config.encoder.name,
            "image_size": list(config.image_size),
            "licence": checkpoint.licence,
            "demo": checkpoint.demo,
            "view": str(self.view_kind),
            "preprocess": str(self.spec.preprocess),
            "rope_dtype": self.spec.rope_dtype,
            "flip_test": self.spec.flip_test,
        }
        if checkpoint.demo:
            metadata["warning"] = DEMO_WARNING
        return metadata | dict(self.vocabulary)


def _stack(parts: Sequence[Array], shape: tuple[int, ...], dtype: str) -> Array:
    return np.concatenate(parts) if parts else np.empty((0, *shape), dtype)
