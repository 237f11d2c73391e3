"""Maps of several persons of an image as one map.

Where frames of persons overlap one label must win, pixel by pixel. Bringing the maps to one grid is
left to the caller.
"""

from __future__ import annotations

import numpy as np

from sapiens_batch.records import Array, LabelSchema
from sapiens_batch.sinks import zarr


def lay_over(schema: LabelSchema, top: Array, below: Array) -> Array:
    """One map of two.

    Args:
        schema: A task with an array whose last axes are y and x.
        top: (..., h, w) the map that wins where both have a label.
        below: (..., h, w) the map that shows elsewhere.

    Returns:
        (..., h, w). A background in class masks hides nothing, and of two mattes the greater alpha
        wins, so that a person who reaches into another one's box does not erase the other.
    """
    if schema.array is None:
        raise ValueError(f"task {schema.task} has no array")
    shows = zarr.is_labeled(schema.array, top)
    free = ~zarr.is_labeled(schema.array, below)
    if schema.task == "seg":
        shows &= (top != background_class(schema)) | free
    elif schema.task == "matting":
        shows &= (top[-1] >= below[-1]) | free
    merged: Array = np.where(shows, top, below)
    return merged


def background_class(schema: LabelSchema) -> int:
    """The class that means "no person": the one called background, else the first."""
    names = [str(name).lower() for name in schema.metadata.get("classes") or ()]
    return names.index("background") if "background" in names else 0
