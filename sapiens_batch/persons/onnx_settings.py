"""What stands beside an ONNX graph: its metadata, and the two files of a transformers export.

What follows from it for a layout is left to `onnx_detector`. Whoever wrote these files owes us
nothing, so what has one clear meaning is accepted in any form, and null stands for left out.
Invariant: anything else is refused by file, key and value, never guessed and never passed over.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sapiens_batch.errors import SpecError
from sapiens_batch.persons.onnx_layouts import Size

CONFIG, PROCESSOR = "config.json", "preprocessor_config.json"
METADATA = "the metadata"
_SHORTEST_EDGE, _LONGEST_EDGE = 800, 1333
_SIDES = ((), ("height", "width"), ("shortest_edge",), ("longest_edge", "shortest_edge"))
# Longer ones are mistakes, and would take all memory.
_LONGEST_SIDE = 2**15
# Of scales and colours; JSON has whole numbers that no float holds.
_LARGEST_NUMBER = 1e9
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Settings:
    """The keys of one file, or of the metadata.

    Attributes:
        model: What the job file calls the model, for messages.
        file: What holds the keys, for messages.
        values: The values by key.
    """

    model: str
    file: str
    values: Mapping[str, Any]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default where it is null or left out."""
        value = self.values.get(key)
        return default if value is None else value

    def refusal(self, key: str, wanted: str) -> SpecError:
        """Why a value is not accepted."""
        shown = repr(self.values.get(key))
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
        return SpecError(f"{self.model}: {self.file} has the {key} {shown}; give {wanted}")


def parse_json(data: bytes, model: str, file: str) -> Settings:
    """The settings in a JSON file; none where it is empty.

    Raises:
        SpecError: It is not a JSON object.
    """
    try:
        found = json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{model}: {file} beside it cannot be parsed ({error})") from error
    if not isinstance(found, dict):
        raise SpecError(
            f"{model}: {file} beside it holds a {type(found).__name__}, not an object of keys; "
            "put the exporter's own file there, or none"
        )
    return Settings(model, file, found)


def class_names(metadata: Settings, config: Settings) -> dict[int, str]:
    """Names by number, of the metadata's `names`, else of the config's `id2label`; or empty.

    Raises:
        SpecError: They are no list, and no mapping between numbers and names.
    """
    wanted = "a list of names, or names by number such as {0: 'person'}"
    if text := metadata.get("names"):
        found = _names(_literal(text))
        if found is None:
            raise metadata.refusal("names", wanted)
        if found:
            return found
    found = _names(config.get("id2label", {}))
    if found is None:
        raise config.refusal("id2label", wanted)
    return found


def metadata_size(metadata: Settings) -> Size | None:
    """(height, width) of the metadata's `imgsz`, px; None where it is left out.

    Raises:
        SpecError: It is neither one side nor two.
    """
    text = metadata.get("imgsz")
    if not text:
        return None
    found = _literal(text)
    given = found if isinstance(found, (list, tuple)) else [found]
    sides = [side for one in given if (side := _side(one)) is not None]
    if len(sides) != len(given) or len(sides) not in (1, 2):
        raise metadata.refusal("imgsz", "one side, or height and width, in pixels: [640, 640]")
    return sides[0], sides[-1]


def processor_size(processor: Settings) -> Size | None:
    """(height, width) that the processor makes images, px; None where it follows from each image.

    Raises:
        SpecError: Its `size` means no size at all.
    """
    sides = _sides(processor)
    return (sides["height"], sides["width"]) if "height" in sides else None


def processor_edges(processor: Settings) -> tuple[int, int]:
    """Shortest and longest side that the processor makes images, px, where it fixes no size.

    Raises:
        SpecError: Its `size` or `max_size` means no length.
    """
    sides = _sides(processor)
    shortest = sides.get("shortest_edge", _SHORTEST_EDGE)
    longest = _side(processor.get("max_size", max(shortest, _LONGEST_EDGE)))
    if longest is None:
        raise processor.refusal("max_size", "the longest side, in pixels")
    return shortest, sides.get("longest_edge", longest)


def positive_number(processor: Settings, key: str, default: float) -> float:
    """A positive number.

    Raises:
        SpecError: It is none.
    """
    value = processor.get(key, default)
    if not _is_number(value) or value <= 0:
        raise processor.refusal(key, "a positive number")
    return float(value)


def channels(
    processor: Settings, key: str, default: tuple[float, ...], *, positive: bool = False
) -> tuple[float, ...]:
    """A number for each of the three channels; one alone is for all.

    Raises:
        SpecError: It is something else, or not positive where it must be.
    """
    value = processor.get(key, default)
    found = tuple(value) if isinstance(value, (list, tuple)) else (value,) * 3
    if (
        len(found) != 3
        or not all(_is_number(one) for one in found)
        or (positive and min(found) <= 0)
    ):
        raise processor.refusal(key, f"three {'positive ' if positive else ''}numbers")
    return found


def is_on(processor: Settings, step: str, *, otherwise: bool = True) -> bool:
    """Whether a step of the processor is done: not where the file says null.

    Raises:
        SpecError: The file says neither true nor false.
    """
    value = processor.values.get(f"do_{step}", otherwise)
    if value not in (None, False, True):
        raise processor.refusal(f"do_{step}", "true or false")
    return bool(value)


def _sides(processor: Settings) -> dict[str, int]:
    """`size` by the names of its sides: height with width, or shortest and longest edge."""
    size = processor.get("size", {})
    if isinstance(size, list):
        size = dict(zip(("height", "width"), size, strict=False)) if len(size) == 2 else {"": size}
    elif not isinstance(size, dict):
        size = {"shortest_edge": size}  # as files have it that are older than the names
    found = {key: _side(value) for key, value in size.items() if value is not None}
    sides = {key: side for key, side in found.items() if side is not None}
    if sides.keys() != found.keys() or tuple(sorted(sides)) not in _SIDES:
        raise processor.refusal(
            "size", "height and width, or shortest_edge and longest_edge, in pixels"
        )
    return sides


def _literal(text: str) -> Any:
    """What a Python or JSON literal stands for; None where it is none."""
    try:
        return ast.literal_eval(text)
    # the last three: unhashable keys, and nesting beyond what the parser bears
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def _names(found: Any) -> dict[int, str] | None:
    """Names by number of a list, or of a mapping either way; None where it is neither."""
    if isinstance(found, (list, tuple)):
        found = dict(enumerate(found))
    if not isinstance(found, dict):
        return None
    names = _by_number(found.items())
    if names is None and all(isinstance(label, str) for label in found):
        names = _by_number((value, label) for label, value in found.items())
    return names if names is not None and len(names) == len(found) else None


def _by_number(pairs: Any) -> dict[int, str] | None:
    names = {}
    for key, label in pairs:
        value = _class_number(key)
        if value is None or not isinstance(label, (str, int, float)):
            return None
        names[value] = str(label)
    return names


def _class_number(key: Any) -> int | None:
    is_text = isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 10
    if is_text or (isinstance(key, int) and not isinstance(key, bool) and key >= 0):
        return int(key)
    return None


def _side(value: Any) -> int | None:
    """A positive whole number, or None."""
    fits = _is_number(value) and 0 < value <= _LONGEST_SIDE and value == int(value)
    return int(value) if fits else None


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and -_LARGEST_NUMBER < value < _LARGEST_NUMBER
    )
