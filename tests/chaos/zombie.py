"""A writer that outlives its driver: it stops in the midst of a chunk and goes on when told to.

The job's context on standard input, the point at which to wait armed in the folder of faults.
"""

from __future__ import annotations

import pickle
import sys

from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.stages.preparer import make_preparer
from sapiens_batch.stages.read import ShardReader
from sapiens_batch.stages.view_labeler import label_views
from sapiens_batch.stages.write import ChunkWriter
from tests.synthetic import Synthetic


def main() -> None:
    """Label and write the first chunk of the job."""
    context = pickle.load(sys.stdin.buffer)
    todo = Manifest.open(context.store).todo()[0]
    read = next(ShardReader(context.spec.source, context.chunk_samples).read(todo))
    prepared = make_preparer(context).prepare(read.chunk)
    labeled = label_views(prepared, context, Synthetic()(context, None))
    ChunkWriter(context.store, context.schemas, [], context.chunk_samples).write(labeled)


if __name__ == "__main__":
    main()
