"""Parts of a job: every shard in exactly one, about as many in each."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest

from sapiens_batch.driver.partition import Partition
from sapiens_batch.errors import SpecError

IDS = [hashlib.sha256(str(number).encode()).hexdigest()[:32] for number in range(3000)]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_shard_belongs_to_one_part(count: int) -> None:
    parts = [Partition(number, count) for number in range(1, count + 1)]
    owners = Counter()
    for shard_id in IDS:
        (owner,) = [part.number for part in parts if part.owns(shard_id)]
        owners[owner] += 1
    assert min(owners.values()) > 0.8 * len(IDS) / count


def test_a_part_is_written_as_one_of_how_many() -> None:
    assert Partition.parse("2/4") == Partition(2, 4)


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "1/0", "-1/4"])
def test_a_part_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="from 1 to N"):
        Partition.parse(text)
