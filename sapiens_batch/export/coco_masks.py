"""COCO masks from part masks: one instance a person, and the parts as a panoptic PNG.

Where part masks belong to the image, a person's instance is defined as the foreground inside the
person's box; where boxes overlap, pixels count for each of them. Where they belong to persons it is
the foreground of the person's own mask.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sapiens_batch.export.maps import encode_png, inside_box, is_foreground
from sapiens_batch.labelset import SampleLabels
from sapiens_batch.labelset.masks import bounding_box, encode_rle
from sapiens_batch.labelset.sample import Row, background_class
from sapiens_batch.records import NO_CLASS, Array, LabelSchema, Level


class InstanceMasks:
    """Instances of a job, from its label schema of `seg`."""

    def __init__(self, schema: LabelSchema) -> None:
        self._schema = schema
        self._of_persons = schema.level is Level.PERSON

    @property
    def description(self) -> str:
        """What an instance is."""
        if self._of_persons:
            return "foreground of the person's own part mask, as RLE"
        return "foreground of the part mask inside the person's box, as RLE"

    def annotation(self, labels: SampleLabels, person: Row, mask: Array) -> dict[str, Any] | None:
        """Segmentation, area and box of one person.

        `mask` has the (height, width) uint8 classes of the image, all persons together.

        Returns:
            Fields of a COCO annotation, or None where the person has no foreground.
        """
        if self._of_persons:
            found = labels.to_source("seg", person["person"])
            if found is None:
                return None
            own = is_foreground(found, self._schema)
        else:
            rows, columns = inside_box(person["bbox"], mask.shape)
            own = np.zeros(mask.shape, bool)
            own[rows, columns] = is_foreground(mask[rows, columns], self._schema)
        bounds = bounding_box(own)
        if bounds is None:
            return None
        return {
            "segmentation": encode_rle(own),
            "area": int(own.sum()),
            "bbox": list(bounds),
        }


class PanopticMasks:
    """Panoptic segments of a job: one a class, its id the class; background is 0, unlabeled."""

    def __init__(self, schema: LabelSchema) -> None:
        self._schema = schema
        self._background = background_class(schema)

    @property
    def categories(self) -> list[dict[str, Any]]:
        """COCO categories; ids are class numbers, moved up by one where 0 is no background."""
        names = self._schema.metadata.get("classes") or ()
        colours = self._schema.metadata.get("palette_rgb") or [[0, 0, 0]] * len(names)
        return [
            {"id": self._id(n), "name": name, "supercategory": "person", "isthing": 0,
             "color": list(colours[n])}
            for n, name in enumerate(names)
            if n != self._background
        ]  # fmt: skip

    def of(self, mask: Array) -> tuple[bytes, list[dict[str, Any]]]:
        """The parts of an image with (height, width) uint8 classes.

        Returns:
            A PNG whose colours are segment ids, R + 256 G + 65,536 B, and COCO's `segments_info`.
        """
        colours = np.zeros((*mask.shape, 3), np.uint8)
        segments = []
        for number in np.unique(mask).tolist():
            if number in (self._background, NO_CLASS):
                continue
            part = mask == number
            colours[part, 0] = self._id(number)
            bounds = bounding_box(part)
            segments.append(
                {"id": self._id(number), "category_id": self._id(number), "iscrowd": 0,
                 "area": int(part.sum()), "bbox": list(bounds or (0, 0, 0, 0))}
            )  # fmt: skip
        return encode_png(colours), segments

    def _id(self, number: int) -> int:
        return number if self._background == 0 else number + 1
