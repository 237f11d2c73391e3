"""What to search for besides a labeled sample: the vector of an image file, or of a .npy file.

Searching is left to `index`. An image is embedded by the very model and preprocessing of the job,
so that its vector is comparable; only that imports torch.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import ValidationError

from sapiens_batch.errors import DriftError, InputError, SampleError
from sapiens_batch.protocol.job import JobDocument
from sapiens_batch.records import Array, TaskName, ViewBatch
from sapiens_batch.search.vectors import DEFAULT_COLUMN
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.storage.addresses import absolute_uri
from sapiens_batch.storage.reading import read_input


def vector_of_file(uri: str, storage_options: Mapping[str, Any] | None = None) -> Array:
    """(q, C) vectors of a .npy file with one vector or several.

    Raises:
        InputError: The file is missing or holds no vectors.
    """
    try:
        data = read_input(absolute_uri(uri), storage_options or {})
        vectors = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{uri} is no readable .npy file: {error}") from error
    if vectors.ndim not in (1, 2) or vectors.dtype.kind not in "fiu":
        raise InputError(
            f"{uri} has shape {vectors.shape} of {vectors.dtype}; give one vector of numbers or "
            "one a row"
        )
    found: Array = np.atleast_2d(vectors).astype(np.float32)
    return found


def vector_of_image(
    job: JobDocument,
    uri: str,
    *,
    column: str = DEFAULT_COLUMN,
    storage_options: Mapping[str, Any] | None = None,
    device: str = "auto",
) -> Array:
    """(C,) the embedding that the job's own model gives an image.

    `column` is `embedding` or `embedding_raw`.

    Raises:
        InputError: The image cannot be read or decoded, or the job has no embeddings.
        DriftError: The weights are not those that the job was labeled with.
        WeightsError: The weights cannot be found or read.
    """
    # torch takes seconds to import and the other queries do without it
    from sapiens_batch.images.decode import decode
    from sapiens_batch.images.views import make_view
    from sapiens_batch.labeler import Labeler

    spec = _embedding_spec(job)
    try:
        image = decode(read_input(absolute_uri(uri), storage_options or {}))
    except SampleError as error:
        raise InputError(f"{uri}: {error.message} ({error.reason})") from error
    tasks: dict[TaskName, TaskSpec] = {"embedding": spec}
    dtype = job.spec.get("runtime", {}).get("dtype", "float32")
    # the terms were accepted when the job was started with these weights
    accepted = job.spec.get("accept_licences", ())
    labeler = Labeler.load(tasks, device=device, dtype=dtype, accept_licences=accepted)
    _check_weights(job, labeler.schemas["embedding"].metadata)
    (view_spec,) = labeler.view_specs
    view = make_view(image, view_spec)
    batch = ViewBatch(
        view_spec,
        view.canvas[None],
        (view.to_source,),
        (view.content,),
        ((image.size[0], image.size[1]),),
        (0,),
    )
    labels = labeler.label({view_spec: batch})["embedding"]
    problem = labels.problems[0]
    if problem is not None:
        raise InputError(f"{uri}: {problem.message} ({problem.reason})")
    vector: Array = labels.columns[column][0]
    return vector


def _embedding_spec(job: JobDocument) -> TaskSpec:
    found = job.spec.get("tasks", {}).get("embedding")
    if found is None:
        raise InputError(f"job {job.name!r} has no task `embedding`; search by vector")
    try:
        return TaskSpec.model_validate(found)
    except ValidationError as error:
        raise InputError(
            f"job.json of {job.name!r}: this version cannot run its task `embedding`: {error}"
        ) from error


def _check_weights(job: JobDocument, loaded: Mapping[str, Any]) -> None:
    """A vector of other weights would be compared without an error and without a meaning."""
    schemas = {schema.task: schema for schema in job.label_schemas}
    used = schemas["embedding"].metadata.get("encoder_sha256")
    if used is not None and used != loaded["encoder_sha256"]:
        raise DriftError(
            f"job {job.name!r} was embedded by encoder {used[:12]}, its checkpoint now resolves to "
            f"{loaded['encoder_sha256'][:12]}; search by key, or make the old weights available"
        )
