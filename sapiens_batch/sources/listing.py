"""A text file with one image path or address a line, in slices.

The line is the sample's key, byte for byte. Images are not looked up while planning, which would
take a request each: a line whose file is gone becomes a quarantined sample, and a file that changed
behind the same name is not noticed. Listings with more columns are read by `sources.parquet`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import chain, islice

from sapiens_batch.errors import InputError
from sapiens_batch.records import Problem, Sample, Shard
from sapiens_batch.sources.base import Source
from sapiens_batch.sources.fields import bad_sample, make_sample
from sapiens_batch.sources.files import iter_images
from sapiens_batch.sources.shards import slice_shards
from sapiens_batch.storage.addresses import absolute_uri, parent_uri
from sapiens_batch.storage.inputs import InputObject, expand, open_input


class ListingSource(Source):
    """Text files of relative paths, absolute paths or addresses; blank lines do not count."""

    def plan(self) -> Iterator[Shard]:
        """One shard per `shard_samples` lines, listing by listing; see `Source.plan`."""
        listings = expand(self.spec.uris, self.spec.storage_options)
        shards = chain.from_iterable(map(self._slices, listings))
        return islice(shards, self.spec.limit)

    def read(self, shard: Shard) -> Iterator[Sample | Problem]:
        """Samples in the order of the lines; a line that repeats is a quarantined sample."""
        seen: set[str] = set()
        images = iter_images(shard.uri, shard.members, self.spec.storage_options)
        for index, (name, content) in enumerate(images):
            if name in seen:
                yield bad_sample(
                    name, index, "source.duplicate_key", f"{shard.key}: line {name!r} is repeated"
                )
            elif isinstance(content, Problem):
                yield bad_sample(name, index, content.reason, content.message)
            else:
                yield make_sample(name, index, content, {}, self.spec)
            seen.add(name)

    def _slices(self, listing: InputObject) -> Iterator[Shard]:
        root = absolute_uri(self.spec.root) if self.spec.root else parent_uri(listing.uri)
        return slice_shards(root, self._lines(listing), self.spec.shard_samples)

    def _lines(self, listing: InputObject) -> Iterator[str]:
        with open_input(listing.uri, self.spec.storage_options) as stream:
            text = io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8-sig", newline=None)
            try:
                for line in text:
                    if name := line.rstrip("\n"):
                        yield name
            except UnicodeDecodeError as error:
                raise InputError(f"{listing.uri} is not UTF-8 text: {error}") from error
