"""A folder of images: every image file below it, in slices.

The key of a sample is its path relative to the folder, suffix included, so `a/1.jpg`, `b/1.jpg` and
`a/1.png` stay apart. The plan holds the names, so a later listing cannot change what a shard means.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from itertools import islice

from sapiens_batch.errors import InputError
from sapiens_batch.records import Problem, Sample, Shard
from sapiens_batch.sources.base import Source
from sapiens_batch.sources.fields import make_sample
from sapiens_batch.sources.image_files import iter_images
from sapiens_batch.sources.names import is_junk
from sapiens_batch.sources.selection import ShardSelection
from sapiens_batch.sources.shards import slice_shards
from sapiens_batch.spec.job import IMAGE_SUFFIXES
from sapiens_batch.storage.addresses import absolute_uri
from sapiens_batch.storage.braces import expand_braces
from sapiens_batch.storage.input_errors import errors_of_field
from sapiens_batch.storage.inputs import InputObject, list_folder


class ImagesSource(Source):
    """One folder, or several named by a list or by braces; then keys start with the folder."""

    def plan(self) -> Iterator[Shard]:
        """One shard per `shard_samples` images, sorted by key; see `Source.plan`."""
        folders = [
            absolute_uri(folder).rstrip("/")
            for uri in self.spec.uris
            for folder in expand_braces(uri)
        ]
        root = folders[0] if len(folders) == 1 else _common_folder(folders)
        with errors_of_field("source.uri"):
            listed = {item.key: item for folder in folders for item in self._images(folder, root)}
        if not listed:
            raise InputError(
                f"{', '.join(folders)} holds no image: looked for {', '.join(IMAGE_SUFFIXES)}"
            )
        selection = ShardSelection(self.spec, root)
        names = [name for name in sorted(listed) if selection.takes(name, {})]
        shards = slice_shards(root, names, self.spec.shard_samples, listed=listed)
        return islice(shards, self.spec.limit)

    def read(self, shard: Shard) -> Iterator[Sample | Problem]:
        """Samples in the order of the plan; a vanished file is a quarantined sample."""
        for index, (name, content) in enumerate(iter_images(shard, self.spec.storage_options)):
            yield make_sample(name, index, content, {}, self.spec)

    def _images(self, folder: str, root: str) -> Iterator[InputObject]:
        suffixes = self.spec.image or IMAGE_SUFFIXES
        prefix = folder[len(root) :].lstrip("/")
        for item in list_folder(folder, suffixes, self.spec.storage_options):
            if not is_junk(item.key):
                key = posixpath.join(prefix, item.key)
                yield InputObject(item.uri, key, item.size_bytes, item.version)


def _common_folder(folders: list[str]) -> str:
    """The deepest folder above all; nested folders would list an image twice."""
    for folder in folders:
        nested = [other for other in folders if other.startswith(folder + "/")]
        if nested or folders.count(folder) > 1:
            raise InputError(
                f"{folder} is named together with {', '.join(nested) or 'itself'}: "
                "name only the outer folder"
            )
    return "/".join(posixpath.commonprefix([folder.split("/") for folder in folders]))
