"""One vector per image: the class token of the encoder, or the mean of its patch tokens.

Any checkpoint serves, since only its encoder is used. Vectors are L2-normalised, so that a dot
product of two is their cosine similarity.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (the name that torch's own documentation uses)

from sapiens_batch.errors import SpecError
from sapiens_batch.models.weights import Checkpoint
from sapiens_batch.records import ColumnField, TaskLabels, ViewBatch, ViewKind
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.tasks.base import Outputs, Task
from sapiens_batch.tasks.dense import to_host
from sapiens_batch.tasks.finite import all_finite, non_finite_problems

_CLS, _PATCHES = "embedding", "embedding_patches"
_MEANING = {_CLS: "class token", _PATCHES: "mean of the patch tokens"}


class EmbeddingTask(Task):
    """Pooled tokens of the stretched image."""

    name = "embedding"
    view_kind = ViewKind.STRETCH
    head = None
    original_variant = "seg"
    default_dtype = "float32"

    def __init__(self, spec: TaskSpec, checkpoint: Checkpoint) -> None:
        super().__init__(spec, checkpoint)
        if spec.pooling != "patches" and not checkpoint.config.encoder.has_class_token:
            raise SpecError(
                f"tasks.embedding.pooling: {spec.pooling}, but {checkpoint.id} has no class token, "
                "as all task models of Sapiens v1; set pooling: patches"
            )

    @property
    def columns(self) -> tuple[ColumnField, ...]:
        """The normalised vectors, and the raw ones where asked."""
        shape = (self.checkpoint.config.encoder.hidden,)
        fields = []
        for name in self._vectors:
            what = _MEANING[name]
            fields.append(ColumnField(name, self.dtype, shape, "", f"{what}, L2-normalised"))
            if self.spec.raw:
                raw = f"{what} as the model gives it"
                fields.append(ColumnField(f"{name}_raw", self.dtype, shape, "", raw))
        return tuple(fields)

    @property
    def _vectors(self) -> tuple[str, ...]:
        return {"cls": (_CLS,), "patches": (_PATCHES,), "both": (_CLS, _PATCHES)}[self.spec.pooling]

    def decode(self, outputs: Outputs, views: ViewBatch) -> TaskLabels:
        """Pool and normalise tokens; NaN where a vector is not finite."""
        raw = torch.stack([_pooled(outputs, name) for name in self._vectors], dim=1)  # (n, V, C)
        dtype = getattr(torch, self.dtype)
        # narrowing first: a raw value beyond the range of float16 is infinite too
        finite = all_finite(raw.to(dtype).float() if self.spec.raw else raw)
        usable = torch.tensor(finite, device=raw.device)[:, None, None]
        raw = torch.where(usable, raw, torch.nan)
        unit = F.normalize(raw, dim=-1)
        columns = {}
        for index, name in enumerate(self._vectors):
            columns[name] = to_host(unit[:, index].to(dtype))
            if self.spec.raw:
                columns[f"{name}_raw"] = to_host(raw[:, index].to(dtype))
        return TaskLabels(columns, None, (), non_finite_problems(finite, "the embedding"))


def _pooled(outputs: Outputs, name: str) -> Tensor:
    """(n, C) float32 vectors."""
    encoding = outputs.encoding
    return encoding.cls.float() if name == _CLS else encoding.patches.float().mean(1)
