"""A COCO annotation file with its images beside it, in slices; boxes come from the annotations.

Keeps boxes of people that are not crowds, as they are written; whether a box makes sense is judged
by the persons stage. Each process parses the file once and keeps only what it needs of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

from sapiens_batch.errors import InputError, SampleError
from sapiens_batch.records import Problem, Sample, Shard
from sapiens_batch.sources.base import Source
from sapiens_batch.sources.fields import bad_sample, json_value, parse_boxes, parse_scores
from sapiens_batch.sources.image_files import iter_images
from sapiens_batch.sources.selection import ShardSelection
from sapiens_batch.sources.shards import check_base_version, slice_shards
from sapiens_batch.spec.job import SourceSpec
from sapiens_batch.storage.addresses import absolute_uri, parent_uri
from sapiens_batch.storage.input_errors import errors_of_field
from sapiens_batch.storage.inputs import InputObject, expand, list_folder, stat_input
from sapiens_batch.storage.reading import read_json

_COCO = "a COCO file: it has no list 'images'"
_INSTEAD = (
    "the annotation file, such as '{}/instances.json', and the folder of the photos as `root:` "
    "where they are not beside it"
)


class CocoSource(Source):
    """One annotation file; `root` is the folder that its file names are relative to."""

    def __init__(self, spec: SourceSpec) -> None:
        super().__init__(spec)
        self._uri = absolute_uri(spec.uris[0])
        self._root = self.root(parent_uri(self._uri))

    def plan(self) -> Iterator[Shard]:
        """One shard per `shard_samples` images, sorted by file name; see `Source.plan`."""
        with errors_of_field("source.uri"):
            objects = expand(self.spec.uris, self.spec.storage_options, instead=_INSTEAD)
        if len(objects) != 1:
            names = ", ".join(item.uri for item in objects[:5])
            raise InputError(f"coco takes one annotation file, not {len(objects)} ({names})")
        index = self._index(objects[0])
        with errors_of_field("source.root" if self.spec.root else "source.uri"):
            photos = list_folder(self._root, storage_options=self.spec.storage_options)
        listed = {item.key: item for item in photos}
        selection = ShardSelection(self.spec, self._uri)
        shards = slice_shards(
            self._root,
            [name for name in index.names if selection.takes(name, index.images[name][0])],
            self.spec.shard_samples,
            listed=listed,
            base_version=objects[0].version,
        )
        return islice(shards, self.spec.limit)

    def read(self, shard: Shard) -> Iterator[Sample | Problem]:
        """Samples in the order of the plan; see `Source.read`."""
        item = stat_input(self._uri, self.spec.storage_options)
        check_base_version(shard, item.version)
        index = self._index(item)
        for number, (name, content) in enumerate(iter_images(shard, self.spec.storage_options)):
            yield self._sample(index, name, number, content)
        if shard.members[0] == index.names[0] and index.num_strays:
            yield Problem(
                "source.unknown_image",
                f"{self._uri}: {index.num_strays} annotations belong to no image; "
                f"the first has id {index.first_stray!r}",
            )

    def _index(self, item: InputObject) -> _CocoIndex:
        return _load(_Address(self._uri, item.fingerprint, self.spec.storage_options))

    def _sample(
        self, index: _CocoIndex, name: str, number: int, content: bytes | Problem
    ) -> Sample:
        entries = index.images[name]
        if len(entries) > 1:
            ids = ", ".join(str(entry.get("id")) for entry in entries)
            message = f"{self._uri}: images {ids} have the same file_name {name!r}"
            content = Problem("source.duplicate_key", message)
        if isinstance(content, Problem):
            return bad_sample(name, number, content)
        entry = entries[0]
        annotations = index.annotations.get(entry.get("id"), [])
        where = f"image {entry.get('id')!r} ({name!r})"
        try:
            boxes = parse_boxes([item.get("bbox") for item in annotations], f"bbox of {where}")
            scores = None
            if self.spec.box_scores is not None:
                values = [item.get(self.spec.box_scores) for item in annotations]
                scores = parse_scores(values, len(boxes), f"{self.spec.box_scores!r} of {where}")
        except SampleError as error:
            return bad_sample(name, number, error)
        record = {**entry, "image_id": entry.get("id")}
        extra = {column: json_value(record.get(column)) for column in self.spec.columns}
        return Sample(name, number, content, boxes, scores, extra)


@dataclass(frozen=True, slots=True)
class _Address:
    """What to load; equal addresses with equal fingerprints hold equal annotations."""

    uri: str
    fingerprint: str
    storage_options: Mapping[str, Any] = field(compare=False)


@dataclass(frozen=True, slots=True)
class _CocoIndex:
    """The parsed file, by image; `names` are sorted and each comes once."""

    names: tuple[str, ...]
    images: Mapping[str, list[dict[str, Any]]]
    annotations: Mapping[Any, list[dict[str, Any]]]
    num_strays: int
    first_stray: Any


@lru_cache(maxsize=2)
def _load(address: _Address) -> _CocoIndex:
    document = read_json(
        address.uri, address.storage_options, planned=address.fingerprint, what=_COCO
    )
    if not isinstance(document.get("images"), list):
        raise InputError(f"{address.uri} is not {_COCO}")
    images: dict[str, list[dict[str, Any]]] = {}
    for image in document["images"]:
        images.setdefault(_file_name(image, address.uri), []).append(image)
    if not images:
        raise InputError(f"{address.uri} lists no images")
    ids = {image.get("id") for image in document["images"]}
    people = _person_ids(document, address.uri)
    annotations: dict[Any, list[dict[str, Any]]] = {}
    strays = []
    for annotation in document.get("annotations", []):
        if annotation.get("image_id") not in ids:
            strays.append(annotation.get("id"))
        elif not annotation.get("iscrowd") and (
            people is None or annotation.get("category_id") in people
        ):
            kept = {name: annotation[name] for name in annotation if name not in _LARGE_FIELDS}
            annotations.setdefault(annotation["image_id"], []).append(kept)
    first_stray = strays[0] if strays else None
    return _CocoIndex(tuple(sorted(images)), images, annotations, len(strays), first_stray)


_LARGE_FIELDS = frozenset({"segmentation", "keypoints"})


def _file_name(image: Any, uri: str) -> str:
    name = image.get("file_name") if isinstance(image, dict) else None
    if not isinstance(name, str) or not name:
        raise InputError(f"{uri}: an entry of 'images' has no file_name: {str(image)[:200]}")
    return name


def _person_ids(document: Mapping[str, Any], uri: str) -> set[Any] | None:
    """Ids of the category `person`; None where every annotation is a person."""
    categories = document.get("categories") or []
    people = {item["id"] for item in categories if str(item.get("name")).lower() == "person"}
    if people:
        return people
    if len(categories) <= 1:
        return None
    names = ", ".join(str(item.get("name")) for item in categories[:10])
    raise InputError(f"{uri} has no category named 'person', only {names}")
