"""What the channels of a head stand for: names, pairs of left and right, colours, skeletons.

Names come from somebody who knows: the job file, the files beside the weights, or a release whose
vocabulary is published. A number of channels alone never chooses them: a fine-tune with 28 classes
of its own is not Sapiens v1. Published lists are data files beside this module; index order is the
models' channel order and must not be confused between them: index 9 is a hip in the 308 keypoints
and a wrist in COCO's 17.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal

from sapiens_batch.errors import SpecError, WeightsError
from sapiens_batch.models.catalog import released
from sapiens_batch.models.weights import Checkpoint

What = Literal["keypoints", "classes"]

_OF_RELEASES: Final[Mapping[What, tuple[str, ...]]] = {
    "keypoints": ("keypoints308", "keypoints133", "keypoints17"),
    "classes": ("seg29", "seg28_v1"),
}
BUILT_IN: Final = (*_OF_RELEASES["keypoints"], *_OF_RELEASES["classes"], "cihp20", "lip20")
"""Names that a job file may give instead of a file."""

_FILES: Final = (
    (re.compile(r"sapiens2_.*pose"), "keypoints308"),
    (re.compile(r"sapiens2_.*seg"), "seg29"),
    (re.compile(r"coco_?wholebody"), "keypoints133"),
    (re.compile(r"cihp"), "cihp20"),
    (re.compile(r"(^|_)lip(_|$)"), "lip20"),
    (re.compile(r"goliath.*(ap|AP)_"), "keypoints308"),
    (re.compile(r"goliath.*miou", re.IGNORECASE), "seg28_v1"),
    (re.compile(r"_coco_"), "keypoints17"),
)
"""Vocabularies by what the names of released files say; the number of channels must agree."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the channels of a head stand for.

    Attributes:
        source: Who says so, for people.
        names: A name for each channel.
        flip_pairs: Channels of the left and the right of a pair; None where they are not known.
        facts: Further facts by name, JSON values: `palette_rgb` for classes; `skeleton`, `sigmas`
            for keypoints; where published, indices in another vocabulary.
    """

    source: str
    names: tuple[str, ...]
    flip_pairs: tuple[tuple[int, int], ...] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def mirrored(self) -> list[int]:
        """The channel that each one becomes when left and right are swapped."""
        order = list(range(len(self.names)))
        for left, right in self.flip_pairs or ():
            order[left], order[right] = right, left
        return order


def vocabulary_of(checkpoint: Checkpoint, what: What, count: int) -> Vocabulary:
    """The vocabulary of a checkpoint's head, from whoever knows it best.

    Args:
        checkpoint: The resolved weights.
        what: What the channels are.
        count: How many there are.

    Raises:
        WeightsError: Somebody names another number of channels.
    """
    config, where = checkpoint.config, f"{what} of {checkpoint.id}"
    if checkpoint.vocabulary is not None:
        return _checked(_from_json(checkpoint.vocabulary, "job file"), count, where)
    of_release = checkpoint.demo or released(checkpoint.id) is not None
    known = _published(_OF_RELEASES[what], count) if of_release else None
    if known is None and (config.names is not None or config.flip_pairs is not None):
        return _checked(_beside(config.names, config.flip_pairs, what, count), count, where)
    if known is None and checkpoint.path is not None:
        name = checkpoint.path.name
        known = _published((of for pattern, of in _FILES if pattern.search(name)), count)
    if known is not None:
        return known
    noun = "class" if what == "classes" else "keypoint"
    return Vocabulary(
        f"none: nothing names these {count} {what}; set vocabulary in the job file",
        tuple(f"{noun}_{channel}" for channel in range(count)),
    )


def load_vocabulary(name: str, where: str) -> Mapping[str, Any]:
    """Read the vocabulary that a job file gives.

    Args:
        name: One of `BUILT_IN`, or the path of a JSON file.
        where: The field, for messages.

    Raises:
        SpecError: There is no such file, or it is none.
    """
    if name in BUILT_IN:
        return _load(name)
    try:
        loaded = json.loads(Path(name).expanduser().read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise SpecError(
            f"{where}: {name}: {error}; give a JSON file with `names`, or one of "
            f"{', '.join(BUILT_IN)}"
        ) from error
    if not isinstance(loaded, dict):
        raise SpecError(f"{where}: {name} is not a JSON object with `names`")
    try:
        _from_json(loaded, name)
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError(
            f"{where}: {name}: {error!r}: it needs `names`, a list of text; `flip_pairs`, "
            "`palette_rgb`, `skeleton` and `sigmas` are optional"
        ) from error
    return loaded


@cache
def _load(name: str) -> Mapping[str, Any]:
    loaded: dict[str, Any] = json.loads(
        files("sapiens_batch.tasks").joinpath("vocab", f"{name}.json").read_text()
    )
    return loaded


def _from_json(loaded: Mapping[str, Any], source: str) -> Vocabulary:
    """A vocabulary out of the values of a file.

    Raises:
        KeyError, TypeError, ValueError: They are not those of one.
    """
    names = tuple(loaded["names"])
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError("names must be text")
    pairs = loaded.get("flip_pairs")
    if pairs is not None:
        pairs = tuple((int(left), int(right)) for left, right in pairs)
        if not all(0 <= channel < len(names) for pair in pairs for channel in pair):
            raise ValueError("flip_pairs must be numbers of names")
    palette = loaded.get("palette_rgb")
    if palette is not None and (len(palette) != len(names) or any(len(c) != 3 for c in palette)):
        raise ValueError("palette_rgb must have three numbers for each name")
    sigmas = loaded.get("sigmas")
    if sigmas is not None and len(sigmas) != len(names):
        raise ValueError("sigmas must have a number for each name")
    facts = {
        "palette_rgb": palette,
        "skeleton": loaded.get("skeleton"),
        "sigmas": sigmas,
        "map_to_308": loaded.get("index17_to_308"),
        "map_to_v2": loaded.get("map_to_v2_29"),
    }
    return Vocabulary(source, names, pairs, facts)


def _beside(
    names: tuple[str, ...] | None,
    pairs: tuple[tuple[int, int], ...] | None,
    what: What,
    count: int,
) -> Vocabulary:
    """What the files beside the weights say; a published vocabulary where they agree with one."""
    source = "config.json"
    for known in (_from_json(_load(name), source) for name in _OF_RELEASES[what]):
        agree = names == known.names or (names is None and _same(pairs, known.flip_pairs))
        if agree and len(known.names) == count:
            return known
    noun = "class" if what == "classes" else "keypoint"
    return Vocabulary(source, names or tuple(f"{noun}_{i}" for i in range(count)), pairs)


def _same(
    some: tuple[tuple[int, int], ...] | None, others: tuple[tuple[int, int], ...] | None
) -> bool:
    return some is not None and {*map(frozenset, some)} == {*map(frozenset, others or ())}


def _published(candidates: Iterable[str], count: int) -> Vocabulary | None:
    """The first of some published vocabularies that has so many names."""
    for name in candidates:
        found = _from_json(_load(name), "published with the release")
        if len(found.names) == count:
            return found
    return None


def _checked(found: Vocabulary, count: int, where: str) -> Vocabulary:
    channels = [channel for pair in found.flip_pairs or () for channel in pair]
    if len(found.names) != count or any(channel >= count for channel in channels):
        raise WeightsError(
            f"{where}: the {found.source} names {len(found.names)}, pairs up to "
            f"{max(channels, default=0)}, the head has {count} channels"
        )
    return found
