"""Putting parts of a chunk together takes the memory of the whole, not twice that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# resident memory has to be that of a process that did nothing else
SCRIPT = """
import gc, resource
from dataclasses import replace
import numpy as np
from sapiens_batch.stages.join import join_chunks
from tests.small_tasks import SCHEMAS, labeled_chunk

ROWS = 4 << 20  # of 6 bytes each

def part(number):
    chunk = labeled_chunk([1], first=number)
    seg = chunk.labels["seg"]
    labels = replace(seg.labels, array=np.full((ROWS, 2, 3), number, np.uint8))
    return replace(chunk, labels={**chunk.labels, "seg": replace(seg, labels=labels)})

header = labeled_chunk([1, 1, 1, 1]).header
parts = [part(number) for number in range(8)]
gc.collect()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
joined = join_chunks(header, SCHEMAS, parts)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
array = joined.labels["seg"].labels.array
assert parts == []
assert [int(one) for one in array[::ROWS, 0, 0]] == list(range(8))
print((after - before) * 1024 / array.nbytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in bytes elsewhere")
def test_parts_are_given_up_as_they_are_copied() -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, check=True, capture_output=True, text=True
    )
    assert float(found.stdout) < 0.4, "of the labels, beside themselves"
