"""Orders to label samples of a shard again, and which generation of a shard is next.

A shard's first labels are its generation 0. What is to be labeled again (a `retry` of quarantined
samples, a repair of damaged objects) is ordered by a create-only document, and carried out by the
next run as the generation of that number. Its commit describes the whole shard; readers take the
newest, the commits before it stay untouched (I2). Writing labels is left to the pipeline.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sapiens_batch.protocol.documents import Count, Document, Hex32
from sapiens_batch.records import FORMAT_VERSION

Cause = Literal["retry", "repair"]


class RelabelOrder(Document):
    """What one later generation of a shard is to label again.

    Attributes:
        format_version: Version of this document.
        shard_id: The shard.
        generation: The generation that carries out the order, from 1.
        cause: Who asked.
        message: Why, for people.
        samples: Sorted indices of the samples to label again; the others are taken over from the
            generation before. None for all samples: then nothing of earlier generations is read.
            Empty where only the array metadata and the commit are to be written anew.
        write_id: Who wrote the order, unique.
        created: ISO 8601 time in UTC.
    """

    format_version: Annotated[int, Field(ge=1, le=FORMAT_VERSION)] = FORMAT_VERSION
    shard_id: Hex32
    generation: Annotated[int, Field(ge=1)]
    cause: Cause
    message: str = ""
    samples: tuple[Count, ...] | None
    write_id: Hex32
    created: str

    @model_validator(mode="after")
    def _is_sorted(self) -> Self:
        if self.samples is not None and list(self.samples) != sorted(set(self.samples)):
            raise ValueError("samples are not sorted or repeat")
        return self

    def covers(self, samples: Collection[int] | None) -> bool:
        """Whether carrying out this order labels the given samples (None: all) again."""
        if self.samples is None:
            return True
        return samples is not None and set(samples) <= set(self.samples)


def choose(open_orders: Iterable[RelabelOrder]) -> RelabelOrder | None:
    """What is carried out next of a shard's open orders.

    An order for all samples needs nothing of the generations before, so the newest such order comes
    first and closes those before it. Else all are carried out at once, as the newest: one alone
    might build on what another one says is damaged, and never be done.
    """
    waiting = sorted(open_orders, key=lambda order: order.generation)
    complete = [order for order in waiting if order.samples is None]
    if complete or not waiting:
        return complete[-1] if complete else None
    samples = {index for order in waiting for index in order.samples or ()}
    return waiting[-1].model_copy(update={"samples": tuple(sorted(samples))})


def ordered_chunks(samples: Collection[int], chunk_samples: int) -> frozenset[int]:
    """The chunks that hold the given samples."""
    return frozenset(index // chunk_samples for index in samples)
