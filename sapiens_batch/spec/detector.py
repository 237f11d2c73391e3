"""The section of the job file that says how persons are found where the source gives no boxes.

Settings with their bounds; finding, reading and running a detector is left to `persons`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from sapiens_batch.spec.section import Section


def is_onnx_file(model: str) -> bool:
    """Whether the name of a detector is that of an ONNX file."""
    return model.lower().endswith(".onnx")


class DetectorSpec(Section):
    """How persons are found where the source gives no boxes."""

    model: str = Field(
        default="movenet",
        description="`movenet` (bundled, at most 6 persons), the hub id or folder of a "
        "transformers object detection model, or the path or address of an .onnx file.",
    )
    person_class: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="ONNX files: number of the class `person`. Default: as the file's metadata "
        "names it, else 0 of 80 classes, 1 of 91, or the only one.",
    )
    revision: str | None = Field(default=None, description="Hub revision.")
    score_threshold: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None,
        description="Boxes with a higher score than this are kept. Default: 0.2 for `movenet`, "
        "0.3 for others.",
    )
    nms_iou: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.3, description="Boxes that overlap a better one by more than this are dropped."
    )
    batch_images: Annotated[int, Field(ge=1)] = Field(
        default=4, description="Images that are decoded and searched at a time."
    )

    @model_validator(mode="after")
    def _person_class_fits_model(self) -> DetectorSpec:
        if self.person_class is not None and not is_onnx_file(self.model):
            raise ValueError(
                f"person_class: has no effect on {self.model}, only on an .onnx file without names"
            )
        return self

    @property
    def threshold(self) -> float:
        """The score threshold, or its default."""
        if self.score_threshold is not None:
            return self.score_threshold
        return 0.2 if self.model == "movenet" else 0.3
