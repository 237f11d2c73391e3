"""What answers in the processes of the tests: it does as it is told."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from sapiens_batch.errors import WeightsError


def start_answering(first: str = "") -> Callable[[Any], Iterator[Any]]:
    if first == "refuse":
        raise WeightsError("model.safetensors is torn")
    if first == "exit":
        os._exit(3)
    if first == "hang":
        time.sleep(600)
    return partial(_answers, [])


def _answers(seen: list[Any], message: Any) -> Iterator[Any]:
    seen.append(message)
    match message:
        case "count":
            yield len(seen)
        case "print":
            print("libraries print what they like")
            sys.stdout.flush()
            os.write(1, b"to wherever")
            yield "printed"
        case ("echo", *values):
            yield from values
        case ("exit after", *values):
            yield from values
            os._exit(7)
        case ("hang after", *values):
            yield from values
            time.sleep(600)
        case ("slowly", num, seconds):
            for number in range(num):
                time.sleep(seconds)
                yield number
        case "raise":
            raise ValueError("nobody expected this")
        case "spin":
            while True:
                pass
