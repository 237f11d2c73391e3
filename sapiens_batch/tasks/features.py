"""The encoder's feature maps, for training other models on.

Any checkpoint serves, since only its encoder is used. A feature belongs to a square patch of the
stretched view; the frame is the grid of patches, so its map to the source is the only geometry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from sapiens_batch.errors import SpecError
from sapiens_batch.images.geometry import stretch_map
from sapiens_batch.models.encoder import Stage
from sapiens_batch.models.weights import Checkpoint
from sapiens_batch.records import ArrayField, ColumnField, Frame, TaskLabels, ViewBatch, ViewKind
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.tasks.base import Outputs, Task
from sapiens_batch.tasks.dense import fill_rows, to_host
from sapiens_batch.tasks.finite import all_finite, non_finite_problems


class FeaturesTask(Task):
    """Patch tokens of the stretched image after chosen layers."""

    name = "features"
    view_kind = ViewKind.STRETCH
    head = None
    original_variant = "seg"

    def __init__(self, spec: TaskSpec, checkpoint: Checkpoint) -> None:
        super().__init__(spec, checkpoint)
        depth = checkpoint.config.encoder.layers
        beyond = [layer for layer in spec.layers if layer > depth]
        if beyond or len(set(spec.layers)) != len(spec.layers):
            raise SpecError(
                f"tasks.features.layers: {spec.layers}; give each layer once, from 0, the "
                f"stem, to the {depth} layers of {checkpoint.id}"
            )

        if spec.class_tokens and not checkpoint.config.encoder.has_class_token:
            raise SpecError(
                f"tasks.features.class_tokens: true, but {checkpoint.id} has no class token, as "
                "all task models of Sapiens v1"
            )

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The layers asked for; the last one where none is."""
        layers = self.spec.layers or [self.checkpoint.config.encoder.layers]
        return tuple(Stage(layer, self.spec.normalised) for layer in layers)

    @property
    def columns(self) -> tuple[ColumnField, ...]:
        """Class tokens where they are asked for; all else is in the array."""
        if not self.spec.class_tokens:
            return ()
        shape = (len(self.stages), self.checkpoint.config.encoder.hidden)
        what = "class token after each layer"
        return (ColumnField("features_cls", self.dtype, shape, "", what),)

    @property
    def array(self) -> ArrayField:
        """The feature maps."""
        config = self.checkpoint.config
        grid = tuple(side // config.encoder.cell for side in config.image_size)
        return ArrayField(
            row_shape=(len(self.stages), config.encoder.hidden, *grid),
            dtype=self.dtype,
            fill_value=float("nan"),
            dimension_names=("layer", "channel", "y", "x"),
            codec="blosc",
            description="patch tokens after each layer",
        )

    @property
    def vocabulary(self) -> Mapping[str, Any]:
        """Which layers, and the side of a patch in view pixels."""
        return {
            "layers": [stage.layer for stage in self.stages],
            "normalised": self.spec.normalised,
            "patch": self.checkpoint.config.encoder.cell,
        }

    def decode(self, outputs: Outputs, views: ViewBatch) -> TaskLabels:
        """Narrow (n, layers, C, h, w) features."""
        encoding = outputs.encoding
        maps = [encoding.feature_map(encoding.stages[stage]) for stage in self.stages]
        # narrowing first: a value beyond the range of float16 is infinite too
        features = torch.stack(maps, dim=1).to(getattr(torch, self.dtype))
        finite = all_finite(features.float())
        labels = [
            one if good else one[..., :0, :0] for one, good in zip(features, finite, strict=True)
        ]
        rows = fill_rows(labels, self.array, features.device)
        problems = non_finite_problems(finite, "features")
        columns = {}
        if self.spec.class_tokens:
            tokens = torch.stack([encoding.stages[stage][:, 0] for stage in self.stages], dim=1)
            tokens = tokens.to(features.dtype)  # (n, layers, C)
            usable = torch.tensor(finite, device=tokens.device)[:, None, None] & tokens.isfinite()
            columns["features_cls"] = to_host(torch.where(usable, tokens, torch.nan))
        return TaskLabels(columns, to_host(rows), _grid_frames(views, encoding.grid), problems)


def _grid_frames(views: ViewBatch, grid: tuple[int, int]) -> tuple[Frame, ...]:
    to_view = stretch_map((views.spec.height, views.spec.width), grid)
    return tuple(Frame(*grid, to_view.then(to_source)) for to_source in views.to_source)
