"""How bright the pictures are, from a random sample of them.

Tables do not hold pixels, so pictures are read again from the source: a stated number, chosen by
seed. Pictures that cannot be read or decoded are counted, not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import cv2
import numpy as np

from sapiens_batch.errors import InputError
from sapiens_batch.labelset.draw import Place
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.records import Problem
from sapiens_batch.sheets.photos import iter_photos

BRIGHTNESS_EDGES: Final = tuple(float(edge) for edge in range(0, 257, 16))
CONTRAST_EDGES: Final = tuple(float(edge) for edge in range(0, 129, 8))


@dataclass(frozen=True, slots=True)
class Brightness:
    """Brightness of a sample of the pictures.

    Attributes:
        num_asked: Pictures that were chosen.
        num_pictures: Pictures that could be read and decoded.
        mean: Mean of their mean luma, 0 to 255.
        brightness: Pictures by mean luma, over `BRIGHTNESS_EDGES`.
        contrast: Pictures by standard deviation of luma, over `CONTRAST_EDGES`; the last bin holds
            all above.
    """

    num_asked: int
    num_pictures: int
    mean: float
    brightness: tuple[int, ...]
    contrast: tuple[int, ...]
    problems: tuple[Problem, ...]


def brightness(
    manifest: Manifest, places: Sequence[Place], source_options: Mapping[str, Any]
) -> Brightness:
    """Look at the pictures of samples."""
    problems: list[Problem] = []
    means, contrasts = [], []
    try:
        for _, photo in iter_photos(manifest, places, source_options, problems):
            if photo is not None:
                luma = cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY)
                means.append(float(luma.mean()))
                contrasts.append(float(luma.std()))
    except InputError as error:
        problems.append(Problem("source.unreadable", str(error)))
    return Brightness(
        num_asked=len(places),
        num_pictures=len(means),
        mean=float(np.mean(means)) if means else 0.0,
        brightness=_counts(means, BRIGHTNESS_EDGES),
        contrast=_counts(contrasts, CONTRAST_EDGES),
        problems=tuple(problems),
    )


def _counts(values: list[float], edges: tuple[float, ...]) -> tuple[int, ...]:
    inside = np.clip(values, edges[0], np.nextafter(edges[-1], 0))
    return tuple(int(count) for count in np.histogram(inside, edges)[0])
