"""Schemas with the columns, arrays and metadata that the tasks of the package write."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from sapiens_batch.records import ArrayField, ColumnField, LabelSchema, Level, TaskName

EMBEDDING_SIZE = 64


@cache
def vocabulary(name: str) -> dict[str, Any]:
    """A vocabulary file of the package."""
    path = files("sapiens_batch.tasks").joinpath("vocab", f"{name}.json")
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def label_schemas(row_size: tuple[int, int], *, demo: bool = False) -> dict[TaskName, LabelSchema]:
    """Schemas with the columns, arrays and metadata that the tasks of the package write."""
    points, classes = vocabulary("keypoints308"), vocabulary("seg29")
    model = {"model": "drawn-0.1b", "architecture": "none", "licence": "CC0-1.0", "demo": demo}
    if demo:
        model["warning"] = "random weights, labels are meaningless"
    vector = ColumnField("embedding", "float32", (EMBEDDING_SIZE,), "", "L2-normalised")
    pose_columns = (
        ColumnField("keypoints", "float32", (308, 2), "px", "(x, y), NaN if missing"),
        ColumnField("keypoint_scores", "float32", (308,), "", "peak height"),
    )
    areas = (ColumnField("seg_class_pixels", "int32", (29,), "px", "frame pixels per class"),)
    camera = (
        ColumnField("pointmap_scale", "float32", (), "", "canonical over actual focal length"),
        ColumnField("pointmap_focal", "float32", (), "px", "implied focal length"),
    )
    mask = ArrayField(row_size, "uint8", 255, ("y", "x"), "zstd", "", "class of each pixel")
    dense = ArrayField((3, *row_size), "float16", np.nan, ("channel", "y", "x"), "blosc")
    pose_words = {"keypoints": points["names"]} | {
        name: points[name] for name in ("skeleton", "flip_pairs", "sigmas")
    }
    seg_words = {"classes": classes["names"], "palette_rgb": classes["palette_rgb"]}
    image, person = Level.IMAGE, Level.PERSON
    return {
        "embedding": LabelSchema("embedding", image, (vector,), None, model),
        "pose": LabelSchema("pose", person, pose_columns, None, model | pose_words),
        "seg": LabelSchema("seg", image, areas, mask, model | seg_words),
        "normal": LabelSchema("normal", image, (), dense, model),
        "pointmap": LabelSchema("pointmap", image, camera, replace(dense, unit="m"), model),
    }
