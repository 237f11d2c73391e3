"""One vector per image: the class token of the encoder.

Any checkpoint serves, since only its encoder is used. The vector is L2-normalised, so that a dot
product of two is their cosine similarity.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F  # noqa: N812 (the name that torch's own documentation uses)

from sapiens_batch.records import ColumnField, Level, TaskLabels, ViewBatch, ViewKind
from sapiens_batch.tasks.base import Outputs, Task
from sapiens_batch.tasks.dense import all_finite, non_finite_problems, to_host


class EmbeddingTask(Task):
    """Class token of the stretched image."""

    name = "embedding"
    level = Level.IMAGE
    view_kind = ViewKind.STRETCH
    head = None
    original_variant = "seg"

    @property
    def columns(self) -> tuple[ColumnField, ...]:
        """The normalised vector, and the raw one where asked."""
        shape = (self.checkpoint.config.encoder.hidden,)
        unit = ColumnField("embedding", "float32", shape, "", "class token, L2-normalised")
        raw = ColumnField(
            "embedding_raw", "float32", shape, "", "class token as the model gives it"
        )
        return (unit, raw) if self.spec.raw else (unit,)

    def decode(self, outputs: Outputs, views: ViewBatch) -> TaskLabels:
        """Normalise class tokens; NaN where one is not finite."""
        raw = outputs.encoding.cls.float()  # (n, C)
        finite = all_finite(raw)
        usable = torch.tensor(finite, device=raw.device)[:, None]
        raw = torch.where(usable, raw, torch.nan)
        columns = {"embedding": to_host(F.normalize(raw, dim=-1))}
        if self.spec.raw:
            columns["embedding_raw"] = to_host(raw)
        return TaskLabels(columns, None, (), non_finite_problems(finite, "the class token"))
