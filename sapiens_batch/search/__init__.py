"""Search over the embeddings of a job: an index beside its labels, queries by vector, key or image.

The index is derived data: it may be deleted and built again. It holds what was committed when it
was built; building again adds what is new.
"""

from sapiens_batch.search.build import build_index
from sapiens_batch.search.documents import IndexView, Segment
from sapiens_batch.search.index import SearchIndex, open_index
from sapiens_batch.search.query import vector_of_file, vector_of_image

__all__ = [
    "IndexView",
    "SearchIndex",
    "Segment",
    "build_index",
    "open_index",
    "vector_of_file",
    "vector_of_image",
]
