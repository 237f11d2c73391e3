"""The section of the job file that describes one label task.

Plain settings with their bounds; what a task does with them, and which of them it refuses, is
decided in `tasks`. Settings of single tasks say so in their description.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sapiens_batch.records import Level, Preprocess, TaskName
from sapiens_batch.spec.section import Section

_OWNERS: dict[str, TaskName] = {
    "raw": "embedding",
    "pooling": "embedding",
    "layers": "features",
    "normalised": "features",
    "class_tokens": "features",
    "frame": "seg",
}
"""Settings that only one task has."""


class TaskSpec(Section):
    """One label task."""

    checkpoint: str = Field(
        description="Hub id, folder, .safetensors or .pth file, TorchScript model, or `demo` for "
        "built-in random weights."
    )
    file: str | None = Field(
        default=None,
        description="Which weights file of a hub repository or folder that has several, relative "
        "to it.",
    )
    revision: str | None = Field(default=None, description="Hub revision; pinned when resolved.")
    preprocess: Preprocess | None = Field(
        default=None,
        description="Whose resampling of the input, and whose fit of lonely heatmap peaks, to "
        "reproduce: `transformers` (default for Sapiens2) or `original` (always for Sapiens v1, "
        "which has no port).",
    )
    image_size: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] | None = Field(
        default=None,
        description="Height and width of the model input in pixels, multiples of a patch (16; 64 "
        "for the 4K models); default: what the weights were trained at.",
    )
    vocabulary: str | None = Field(
        default=None,
        description="What the channels of a pose or seg head stand for: a JSON file with `names` "
        "and, where known, `flip_pairs`, `palette_rgb`, `skeleton`, `sigmas`; or one of "
        "keypoints308, keypoints133, keypoints17, seg29, seg28_v1, cihp20, lip20. Default: what is "
        "said beside the weights, or published with a release.",
    )
    rope_dtype: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="float32 as the transformers port computes, bfloat16 as the original does.",
    )
    flip_test: bool = Field(
        default=False, description="Average with the labels of the mirrored view."
    )
    confidence: Literal["none", "columns"] = Field(
        default="none",
        description="Further columns that say how sure the model is: seg, probabilities of each "
        "class; matting, undecided alpha; normal, pointmap, depth and albedo, how far the two "
        "views of a flip test are apart; pose, keypoints outside their crop.",
    )
    region: Level = Field(
        default=Level.IMAGE,
        description="Label the image, or the box of each person; pose is of persons anyway.",
    )
    dtype: Literal["float16", "float32"] | None = Field(
        default=None,
        description="Stored precision of numeric arrays and of embeddings; default: float16 for "
        "arrays, float32 for embeddings.",
    )
    frame: Literal["undistorted", "view"] = Field(
        default="undistorted",
        description="seg: the grid of the mask, undistorted pixels or those that were computed; "
        "`view` keeps all rows of a landscape photo, in pixels that are not square.",
    )
    pooling: Literal["cls", "patches", "both"] = Field(
        default="cls",
        description="embedding: the class token, the mean of the patch tokens, or both.",
    )
    raw: bool = Field(
        default=False,
        description="embedding: keep the vectors as the model gives them too, after its final norm "
        "and before L2-normalisation, in `embedding_raw` and `embedding_patches_raw`.",
    )
    layers: list[Annotated[int, Field(ge=0)]] = Field(
        default_factory=list,
        description="features: after which encoder layers, counted from 1; 0: what enters the "
        "first; empty: the last one.",
    )
    class_tokens: bool = Field(
        default=False,
        description="features: the class token after each of the layers too, in `features_cls`.",
    )
    normalised: bool = Field(
        default=True, description="features: apply the encoder's final norm to every layer."
    )
    patch_padding: Literal[0, 2] | None = Field(
        default=None,
        description="Sapiens v1: zeros around the image before patches are cut, which the weights "
        "do not record; default: 2 for pose and normal, 0 for seg, depth and pretrained encoders.",
    )

    def check_owner(self, name: TaskName) -> None:
        """Refuse settings that belong to another task.

        Raises:
            ValueError: Names the setting and the task that has it.
        """
        for setting, owner in _OWNERS.items():
            field = type(self).model_fields[setting]
            # defaults count as not given, so that a spec read back from `job.json` is valid
            changed = getattr(self, setting) != field.get_default(call_default_factory=True)
            if owner != name and changed:
                raise ValueError(f"{name}.{setting}: only `{owner}` has it")
