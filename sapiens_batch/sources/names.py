"""What a stored name says: the sample's key, its suffix, whether it is an image, junk or unsafe.

Names are `/`-separated and relative to an archive or folder. Keys are cut out of names, never
changed. Whether the content is an image is decided by decoding, not here.
"""

from __future__ import annotations

from collections.abc import Sequence

from sapiens_batch.spec.job import IMAGE_SUFFIXES

_JUNK_NAMES = frozenset({"thumbs.db", "desktop.ini", "__macosx"})


def split_name(name: str) -> tuple[str, str]:
    """Key and lower-case suffix, split at the first dot of the base name, as WebDataset does.

    The suffix is empty where the base name has no dot; then the key is the whole name.
    """
    folder, slash, base = name.rpartition("/")
    stem, _, suffix = base.partition(".")
    return folder + slash + stem, suffix.lower()


def is_junk(name: str) -> bool:
    """Whether an operating system left it behind: hidden names, `__MACOSX`, `Thumbs.db`."""
    return any(
        part.lower() in _JUNK_NAMES or (part.startswith(".") and part not in (".", ".."))
        for part in name.split("/")
    )


def is_unsafe(name: str) -> bool:
    """Whether the name is absolute or leaves the folder that it is relative to."""
    return name.startswith("/") or ".." in name.split("/")


def image_rank(suffix: str, preferred: Sequence[str] = ()) -> tuple[int, int] | None:
    """How well a member suffix fits as the sample's image; smaller is better, None is no image.

    A whole suffix (`jpg`, or `rgb.png` where preferred) comes before one that only ends in an image
    suffix (`left.jpg`); within both, the order of `preferred` or of `IMAGE_SUFFIXES` decides.
    """
    order = [name.lower() for name in preferred] or list(IMAGE_SUFFIXES)
    if suffix in order:
        return 0, order.index(suffix)
    last = suffix.rpartition(".")[2]
    if last != suffix and last in order:
        return 1, order.index(last)
    return None
