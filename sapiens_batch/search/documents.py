"""What an index folder holds: segments that never change, and views that say which ones count.

`segments/<id>/` has the vectors and places of some shards; `views/<number>.json` names the segments
of the index as of one build, and the view with the highest number is the index. Everything is
created once and nothing is overwritten, so that an index can be read while it is built.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from sapiens_batch.errors import StorageError
from sapiens_batch.protocol.documents import Count, Document, Hex32, Sha256, StoredObject
from sapiens_batch.storage import Store

INDEX_VERSION: Final = 1
REMEDY: Final = "delete the index folder and build it again"

_VIEW = re.compile(r"views/(?P<number>\d{6,})\.json")


class Segment(Document):
    """The vectors of some shards.

    Attributes:
        segment_id: From the shards, the column and the settings.
        kind: `exact` compares with every vector, `approximate` with those of the nearest cells.
        shards: Generation by id of the shards that it covers, also those without a vector.
        num_cells: Cells of an approximate segment, else 0.
        probes: Cells that a query looks into.
        recall: Share of the ten nearest neighbours that is found with so many probes, measured when
            it was built; 1 for exact segments.
        places: Parquet file: `key`, `shard_id`, `index` of each vector, in order.
        vectors: The faiss index.
    """

    segment_id: Hex32
    kind: Literal["exact", "approximate"]
    num_rows: Count
    shards: dict[str, Count]
    num_cells: Count = 0
    probes: Count = 0
    recall: Annotated[float, Field(ge=0, le=1)] = 1.0
    places: StoredObject
    vectors: StoredObject


class IndexView(Document):
    """The index as of one build.

    Attributes:
        number: Counts up with each build that found something new.
        column: Column of `images` that holds the vectors.
        segments: The segments, in the order of their rows.
        write_id: The build, unique.
    """

    format_version: Annotated[int, Field(ge=1, le=INDEX_VERSION)] = INDEX_VERSION
    number: Count
    job: str
    spec_digest: Sha256
    column: str
    dimension: Annotated[int, Field(ge=1)]
    segments: tuple[Segment, ...]
    write_id: Hex32
    created: str

    @property
    def num_rows(self) -> int:
        """Vectors in all segments."""
        return sum(segment.num_rows for segment in self.segments)

    @property
    def recall(self) -> float:
        """Mean recall of the segments, weighted by their vectors."""
        found = sum(segment.recall * segment.num_rows for segment in self.segments)
        return found / self.num_rows if self.num_rows else 1.0


def view_key(number: int) -> str:
    """Key of a view."""
    return f"views/{number:06d}.json"


def segment_key(segment_id: str) -> str:
    """Key of the document that makes a segment whole."""
    return f"segments/{segment_id}/segment.json"


def segment_object(segment_id: str, write_id: str, suffix: str) -> str:
    """Key of a segment's data, unique to the build that wrote it."""
    return f"segments/{segment_id}/{write_id}.{suffix}"


def existing_view(store: Store) -> IndexView:
    """As `newest_view`, of a folder that holds an index.

    Raises:
        StorageError: It holds none.
    """
    view = newest_view(store)
    if view is None:
        raise StorageError(f"{store.uri} holds no index; make one with `search build`")
    return view


def newest_view(store: Store) -> IndexView | None:
    """The index that an index folder holds, or None before the first build.

    Raises:
        ProtocolError: The view is damaged or of a newer version.
    """
    names = [info.key for info in store.list("views/") if _VIEW.fullmatch(info.key)]
    if not names:
        return None
    key = max(names, key=lambda name: (len(name), name))
    return IndexView.from_bytes(store.read(key), key)


def segment_id(column: str, shards: Mapping[str, int], settings: Mapping[str, float]) -> str:
    """Identity of a segment: what it covers and how it is built."""
    content = json.dumps([column, sorted(shards.items()), sorted(settings.items())])
    return hashlib.sha256(content.encode()).hexdigest()[:32]
