"""What a label task is: the view it needs, the labels it gives, and decoding between the two.

A task is made from a job's settings and a resolved checkpoint and holds no weights, so a driver can
ask for schemas and views without an accelerator. Running encoders and heads is left to `labeler`.
Decoding happens on the device of the raw outputs; only narrowed labels reach the host, and the
labels of a view depend on that view alone (invariant I7).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from sapiens_batch.errors import SpecError, WeightsError
from sapiens_batch.models.configs import HeadKind
from sapiens_batch.models.demo import DEMO_WARNING
from sapiens_batch.models.encoder import Encoding, Stage
from sapiens_batch.models.heads import HeadOutput
from sapiens_batch.models.weights import Checkpoint
from sapiens_batch.records import (
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
from sapiens_batch.spec.task import TaskSpec

V1_VARIANT = "v1"
"""The filters of Sapiens v1, which are the same for all tasks: every view is bilinear."""


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
    view_kind: ClassVar[ViewKind]
    head: ClassVar[HeadKind | None]
    can_flip: ClassVar[bool] = False
    original_variant: ClassVar[str] = ""

    def __init__(self, spec: TaskSpec, checkpoint: Checkpoint) -> None:
        self.spec = spec
        self.checkpoint = checkpoint
        self._check_head()
        self._check_settings()

    @property
    def preprocess(self) -> Preprocess:
        """Whose preprocessing is followed: as asked, else the one that the model is known by."""
        known = Preprocess.ORIGINAL if self.checkpoint.config.is_v1 else Preprocess.TRANSFORMERS
        return self.spec.preprocess or known

    @property
    def view_spec(self) -> ViewSpec:
        """The model input that the task needs."""
        kind, variant = self.view_kind, ""
        if self.preprocess is Preprocess.ORIGINAL:
            variant = self.original_variant
        if self.checkpoint.config.is_v1:
            kind = kind if kind is ViewKind.CROP else ViewKind.STRETCH
            variant = V1_VARIANT
        region = Level.IMAGE if kind is ViewKind.CROP else self.spec.region
        size = self.checkpoint.config.image_size
        return ViewSpec(kind, *size, self.preprocess, variant, region)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Where in the encoder the task needs tokens, besides the end."""
        return ()

    @property
    def patch_padding(self) -> int:
        """Zeros around the image before a Sapiens v1 encoder cuts patches, px."""
        asked = self.spec.patch_padding
        return self.checkpoint.patch_padding if asked is None else asked

    @property
    def schema(self) -> LabelSchema:
        """Columns, array and metadata of the labels."""
        level = self.view_spec.owner
        return LabelSchema(self.name, level, self.columns, self.array, self._metadata())

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
        """Average raw outputs with those of the mirrored views, mirrored back.

        Args:
            output: Raw outputs for the views.
            mirrored: Raw outputs for the same views mirrored left to right.
        """
        maps = (output.maps + self.unmirrored(mirrored.maps)) / 2
        if output.scale is None or mirrored.scale is None:
            return HeadOutput(maps)
        return HeadOutput(maps, (output.scale + mirrored.scale) / 2)

    def unmirrored(self, maps: Tensor) -> Tensor:
        """(n, K, h, w) raw maps of mirrored views as those of the views."""
        return maps.flip(-1)

    def _check_head(self) -> None:
        found = self.checkpoint.config.head
        if self.head is None or (found is not None and found.kind == self.head):
            return
        has = "an encoder without a head" if found is None else f"a {found.kind} model"
        raise WeightsError(
            f"tasks.{self.name}.checkpoint: {self.checkpoint.id} is {has}; give weights with a "
            f"{self.head} head"
        )

    def _check_settings(self) -> None:
        spec, is_v1 = self.spec, self.checkpoint.config.is_v1
        if spec.flip_test and not self.can_flip:
            raise SpecError(f"tasks.{self.name}.flip_test: true, but {self.name} has no flip test")
        if is_v1 and spec.preprocess is Preprocess.TRANSFORMERS:
            raise SpecError(
                f"tasks.{self.name}.preprocess: transformers, but {self.checkpoint.id} is a "
                "Sapiens v1 model, which has no port: leave preprocess out"
            )
        if not is_v1 and spec.patch_padding is not None:
            raise SpecError(
                f"tasks.{self.name}.patch_padding: {spec.patch_padding}, but only Sapiens v1 "
                f"models have it and {self.checkpoint.id} is none"
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
            "licence_accepted_by": checkpoint.accepted_by or None,
            "demo": checkpoint.demo,
            "view": str(self.view_spec.kind),
            "preprocess": str(self.preprocess),
            "flip_test": self.spec.flip_test,
        }
        if config.is_v1:
            metadata["patch_padding"] = self.patch_padding
        else:
            metadata["rope_dtype"] = self.spec.rope_dtype
        if checkpoint.demo:
            metadata["warning"] = DEMO_WARNING
        return metadata | dict(self.vocabulary)
