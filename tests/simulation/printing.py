"""A history for a person: one line a store call, ids shortened, then faults and what broke."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from sapiens_batch.storage.base import ObjectInfo
from tests.simulation.world import START_S, Event

_HEX = re.compile(r"[0-9a-f]{32}")


class Names:
    """Short names for ids, in the order in which they come."""

    def __init__(self, shard_ids: Sequence[str]) -> None:
        self._short = {one: f"<shard {number}>" for number, one in enumerate(shard_ids)}

    def shorten(self, text: str) -> str:
        """A text with its ids shortened."""
        return _HEX.sub(self._name, text)

    def _name(self, match: re.Match[str]) -> str:
        return self._short.setdefault(match[0], f"<{len(self._short)}:{match[0][:4]}>")


def printed(events: Iterable[Event], shard_ids: Sequence[str]) -> list[str]:
    """The lines of a history."""
    names = Names(shard_ids)
    lines = []
    for event in events:
        result = names.shorten(_result(event.result))
        fault = f"   !! {event.fault}" if event.fault else ""
        key = names.shorten(event.key)
        time_s = event.clock_s - START_S
        lines.append(
            f"{event.call:5d} {time_s:9.2f} s  {event.actor:16s} {event.what:8s} {key}"
            f"{' -> ' + result if result else ''}{fault}"
        )
    return lines


def _result(result: Any) -> str:
    if isinstance(result, bytes):
        return f"{len(result)} bytes"
    if isinstance(result, list):
        shown = ", ".join(one.key if isinstance(one, ObjectInfo) else str(one) for one in result)
        return f"[{shown}]"
    if isinstance(result, Exception):
        return f"{type(result).__name__}: {result}"
    return str(result)
