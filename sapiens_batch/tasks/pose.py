"""Keypoints of each person, in source pixels.

Heatmaps of a person crop are decoded on the device and mapped through the crop's geometry (UDP). A
keypoint whose heatmap has no positive value is missing (NaN), never a made-up position; the
reference codes give nonsense there. Peaks in surroundings so negative that nothing positive is left
after smoothing are decoded as the code does whose preprocessing is followed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from sapiens_batch.images.geometry import heatmap_map
from sapiens_batch.models.weights import Checkpoint
from sapiens_batch.records import ColumnField, TaskLabels, ViewBatch, ViewKind
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.tasks.base import Outputs, Task
from sapiens_batch.tasks.dense import to_host
from sapiens_batch.tasks.heatmaps import decode_heatmaps


class PoseTask(Task):
    """Keypoints of person crops."""

    name = "pose"
    view_kind = ViewKind.CROP
    head = "pose"
    can_flip = True
    confidence_from = "outputs"

    def __init__(self, spec: TaskSpec, checkpoint: Checkpoint) -> None:
        super().__init__(spec, checkpoint)
        self._vocabulary = self.named("keypoints", self.num_keypoints)

    @property
    def num_keypoints(self) -> int:
        """Keypoints K of the checkpoint's head."""
        head = self.checkpoint.config.head
        assert head is not None, "checked on construction"
        return head.out_channels

    @property
    def columns(self) -> tuple[ColumnField, ...]:
        """Positions and scores."""
        count = self.num_keypoints
        outside = (
            ColumnField(
                "keypoint_outside",
                "bool",
                (count,),
                "",
                "whether it lies outside the person's crop",
            ),
            ColumnField("num_keypoints_outside", "int32", (), "", "keypoints outside the crop"),
        )
        return (
            ColumnField(
                "keypoints", "float32", (count, 2), "px", "(x, y) in source pixels, NaN if missing"
            ),
            ColumnField(
                "keypoint_scores",
                "float32",
                (count,),
                "",
                "height of the heatmap's peak, about 0 to 1 but not a probability",
            ),
            *(outside if self.is_confidence_asked else ()),
        )

    @property
    def vocabulary(self) -> Mapping[str, Any]:
        """Names, flip pairs, skeleton and sigmas."""
        known = self._vocabulary
        return {
            "vocabulary": known.source,
            "keypoints": list(known.names),
            "flip_pairs": known.flip_pairs and [list(pair) for pair in known.flip_pairs],
            "skeleton": known.facts.get("skeleton") or [],
            "sigmas": known.facts.get("sigmas"),
            "map_to_308": known.facts.get("map_to_308"),
        }

    def decode(self, outputs: Outputs, views: ViewBatch) -> TaskLabels:
        """Decode (n, K, h, w) heatmaps."""
        positions, scores = decode_heatmaps(outputs.maps, like=self.preprocess)
        view_size = (views.spec.height, views.spec.width)
        heatmap_size = (outputs.maps.shape[-2], outputs.maps.shape[-1])
        maps = [heatmap_map(crop, view_size, heatmap_size) for crop in views.to_source]
        found = to_host(positions)  # (n, K, 2) float64
        source = [affine.apply(xy) for affine, xy in zip(maps, found, strict=True)]
        keypoints = np.asarray(source, np.float32).reshape(-1, self.num_keypoints, 2)
        columns = {"keypoints": keypoints, "keypoint_scores": to_host(scores)}
        if self.is_confidence_asked:
            # the fit of a peak may end far from it; half a pixel still belongs to the edge
            last = np.array(heatmap_size[::-1]) - 1
            # a missing keypoint is nowhere, so not outside either
            outside = np.asarray(((found < -0.5) | (found > last + 0.5)).any(-1))
            columns["keypoint_outside"] = outside
            columns["num_keypoints_outside"] = outside.sum(-1, dtype=np.int32)
        return TaskLabels(columns, None, (), (None,) * len(views))

    def unmirrored(self, maps: Tensor) -> Tensor:
        """Mirror back and swap the heatmaps of left and right keypoints."""
        return maps.flip(-1)[:, self._vocabulary.mirrored]
