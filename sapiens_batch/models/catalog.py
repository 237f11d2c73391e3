"""The checkpoints that Meta released: where they are, what they are for, how large they are.

A list for people; what a file really is, its tensors say (`weights`). Parameter counts are those
of the modules built from the configurations. Sizes are in decimal GB.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from sapiens_batch.errors import WeightsError
from sapiens_batch.models.configs import HeadConfig, HeadKind, released_head
from sapiens_batch.models.configs_v1 import released_v1_head
from sapiens_batch.models.licences import CC_BY_NC_4, SAPIENS2, Licence

_FLOAT32_BYTES: Final = 4
_BFLOAT16_BYTES: Final = 2
_GRID_TOKENS: Final = 64 * 48
_ENCODER_ROOM: Final = 12
"""Vectors of the encoder's width per token that are alive at once: the gated layer, mostly."""

_PRETRAIN_V1_TOKENS: Final = 64 * 64 + 1 + 1 - 64 * 48
"""Rows of the position table, and the class token, that task encoders of Sapiens v1 lack."""

_NAMED_LIKE_A_RELEASE: Final = re.compile(r"facebook/sapiens2?-[a-z]+-\d[\w.-]*")
_OTHER_FORMS: Final = ("-torchscript", "-bfloat16")
"""Endings of the hub ids under which Meta keeps other forms of the same weights."""

_SHOWN_RELEASES: Final = 4

ENCODER_PARAMETERS: Final = {
    "sapiens2-0.1b": 113_993_472,
    "sapiens2-0.4b": 395_450_368,
    "sapiens2-0.8b": 814_283_520,
    "sapiens2-1b": 1_455_474_176,
    "sapiens2-1b-4k": 1_606_588_928,
    "sapiens2-5b": 5_066_902_976,
    "sapiens-0.3b": 306_244_608,
    "sapiens-0.6b": 634_597_120,
    "sapiens-1b": 1_139_163_648,
    "sapiens-2b": 2_131_943_040,
}
_HIDDEN: Final = {
    "sapiens2-0.1b": 768,
    "sapiens2-0.4b": 1024,
    "sapiens2-0.8b": 1280,
    "sapiens2-1b": 1536,
    "sapiens2-1b-4k": 1536,
    "sapiens2-5b": 2432,
    "sapiens-0.3b": 1024,
    "sapiens-0.6b": 1280,
    "sapiens-1b": 1536,
    "sapiens-2b": 1920,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A released checkpoint.

    Attributes:
        id: Hub id.
        arch: Name of its encoder.
        head: What its head gives, None for a pretrained encoder.
        tasks: Tasks that it serves.
        parameters: Encoder and head together.
        peak_values: Numbers that a forward pass of one view keeps alive besides the parameters,
            roughly.
        licence: Its terms.
    """

    id: str
    arch: str
    head: HeadKind | None
    tasks: tuple[str, ...]
    parameters: int
    peak_values: int
    licence: Licence

    @property
    def file_gb(self) -> float:
        """Size of the download; released tensors are float32."""
        return self.parameters * _FLOAT32_BYTES / 1e9

    @property
    def memory_float32_gb(self) -> float:
        """Estimate of the memory that labels one view at a time take in float32."""
        return (self.parameters + self.peak_values) * _FLOAT32_BYTES / 1e9

    @property
    def memory_bfloat16_gb(self) -> float:
        """The same in bfloat16."""
        return (self.parameters + self.peak_values) * _BFLOAT16_BYTES / 1e9


def head_parameters(config: HeadConfig) -> int:
    """Parameters of a head, layer by layer."""
    widths = (config.in_channels, *config.upsample_channels)
    total = 0
    for before, after in pairwise(widths):
        shuffled = config.upsample == "pixel_shuffle"
        total += (9 * before + 1) * 4 * after if shuffled else 16 * before * after
    if config.upsample == "pixel_shuffle":
        total += (9 * config.in_channels + 1) * config.in_channels
    convs = (widths[-1], *config.conv_channels)
    area = config.conv_kernel**2
    total += sum((area * a + 1) * b for a, b in pairwise(convs))
    total += (convs[-1] + 1) * config.out_channels
    if config.kind == "albedo":
        total += config.in_channels + sum(config.upsample_channels) + sum(config.conv_channels)
    scales = (config.in_channels, *config.scale_channels)
    total += sum((a + 1) * b for a, b in pairwise(scales))
    if config.scale_hidden:
        linear = (config.scale_inputs, *config.scale_hidden, 1)
        total += sum((a + 1) * b for a, b in pairwise(linear))
    return total


def releases() -> Iterator[Release]:
    """Every released checkpoint, Sapiens2 first."""
    for size in ("0.1b", "0.4b", "0.8b", "1b", "1b-4k", "5b"):
        yield _release(f"facebook/sapiens2-pretrain-{size}", f"sapiens2-{size}", None)
    kinds: tuple[HeadKind, ...] = ("pose", "seg", "normal", "pointmap")
    for kind in kinds:
        for size in ("0.4b", "0.8b", "1b", "5b"):
            head = released_head(kind, size)
            yield _release(f"facebook/sapiens2-{kind}-{size}", f"sapiens2-{size}", head)
    yield _release("facebook/sapiens2-matting-1b", "sapiens2-1b", released_head("matting", "1b"))
    yield from _v1_releases()


def released(checkpoint: str) -> Release | None:
    """The release that a hub id names; None for anything else."""
    forms = (checkpoint.removesuffix(ending) for ending in ("", *_OTHER_FORMS))
    known = {release.id: release for release in releases()}
    return (
        None
        if Path(checkpoint).exists()
        else next((known[one] for one in forms if one in known), None)
    )


def unknown_release(checkpoint: str) -> str:
    """A hint for messages: the releases nearest to an id that is named like one; else empty.

    The id may be newer than this table, so it is for the hub to say that there is no such thing.
    """
    if (
        not _NAMED_LIKE_A_RELEASE.fullmatch(checkpoint)
        or Path(checkpoint).exists()
        or released(checkpoint)
    ):
        return ""
    near = difflib.get_close_matches(checkpoint, [one.id for one in releases()], n=_SHOWN_RELEASES)
    return (
        f"; no such release is known to this version, the nearest are {', '.join(near)}; "
        "`sapiens-batch models list` shows all"
    )


def check_serves(checkpoint: str, task: str) -> None:
    """Check that a hub id, by its name alone, can be what a task needs.

    Raises:
        WeightsError: It names a release that is for other tasks.
    """
    release = released(checkpoint)
    if release is None or task in release.tasks:
        return
    generation = release.id.partition("-")[0]
    fitting = [
        one.id for one in releases() if task in one.tasks and one.id.startswith(generation + "-")
    ]
    near = difflib.get_close_matches(checkpoint, fitting, n=_SHOWN_RELEASES)
    offer = f"; for {task} there are {', '.join(near)}" if near else ""
    raise WeightsError(
        f"tasks.{task}: {checkpoint} serves {', '.join(release.tasks)}, not {task}{offer}"
    )


def _v1_releases() -> Iterator[Release]:
    sizes = ("0.3b", "0.6b", "1b", "2b")
    for size in sizes:
        yield _release(f"facebook/sapiens-pretrain-{size}", f"sapiens-{size}", None)
    people: tuple[HeadKind, ...] = ("pose", "seg")
    geometry: tuple[HeadKind, ...] = ("normal", "depth")
    for size in sizes[:3]:
        for kind in people:
            head = released_v1_head(kind, size)
            yield _release(f"facebook/sapiens-{kind}-{size}", f"sapiens-{size}", head)
    for size in sizes:
        for kind in geometry:
            head = released_v1_head(kind, size)
            yield _release(f"facebook/sapiens-{kind}-{size}", f"sapiens-{size}", head)


def _release(checkpoint: str, arch: str, head: HeadConfig | None) -> Release:
    is_v1 = arch.startswith("sapiens-")
    has_class_token = not is_v1 or head is None
    extra = _PRETRAIN_V1_TOKENS * _HIDDEN[arch] if is_v1 and head is None else 0
    tasks = ("features", "embedding") if has_class_token else ("features",)
    return Release(
        id=checkpoint,
        arch=arch,
        head=head.kind if head else None,
        tasks=(head.kind, *tasks) if head else tasks,
        parameters=ENCODER_PARAMETERS[arch] + extra + (head_parameters(head) if head else 0),
        peak_values=max(_ENCODER_ROOM * _HIDDEN[arch] * _GRID_TOKENS, _head_peak(head)),
        licence=CC_BY_NC_4 if is_v1 else SAPIENS2,
    )


def _head_peak(head: HeadConfig | None) -> int:
    """Numbers into and out of the largest layer of a head."""
    if head is None:
        return 0
    pixels, peak = _GRID_TOKENS, 0
    before = head.in_channels
    for after in head.upsample_channels:
        pixels *= 4
        peak = max(peak, pixels // 4 * before + 2 * pixels * after)
        before = after
    for after in (*head.conv_channels, head.out_channels):
        peak = max(peak, pixels * (before + after))
        before = after
    return peak
