"""Small label schemas for tests of the sinks and of what stands on them."""

from __future__ import annotations

import math

from sapiens_batch.records import ArrayField, ColumnField, LabelSchema, Level

SEG = LabelSchema(
    "seg",
    Level.IMAGE,
    (),
    ArrayField((8, 6), "uint8", 255, ("y", "x"), "zstd", "", "class of each pixel"),
    {"vocabulary": ["Background", "Skin"], "model": {"id": "demo"}},
)
NORMAL = LabelSchema(
    "normal",
    Level.IMAGE,
    (),
    ArrayField((3, 8, 6), "float16", math.nan, ("channel", "y", "x"), "blosc"),
    {"model": {"id": "demo"}},
)
DEPTH = LabelSchema(
    "depth",
    Level.IMAGE,
    (),
    ArrayField((8, 6), "float32", math.nan, ("y", "x"), "blosc", "m"),
    {},
)
EMBEDDING = LabelSchema(
    "embedding",
    Level.IMAGE,
    (ColumnField("embedding", "float16", (4,), "", "unit vector"),),
    None,
    {"model": {"id": "demo"}},
)
POSE = LabelSchema(
    "pose",
    Level.PERSON,
    (
        ColumnField("keypoints", "float32", (5, 2), "px", "(x, y) in source pixels"),
        ColumnField("keypoint_scores", "float32", (5,), "probability", "heatmap maximum"),
    ),
    None,
    {"skeleton": {"names": ["a", "b", "c", "d", "e"]}},
)
ALL = (SEG, NORMAL, EMBEDDING, POSE)
