"""The tables of a job in DuckDB, with the columns that people select by.

`images` and `persons` are the job's tables; `samples` is `images` with derived columns, each made
only for a query that names it, since some read all keypoints. Nothing of the machine can be read
through a query but these tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds

from sapiens_batch.errors import DependencyError, SpecError
from sapiens_batch.labelset import LabelSet
from sapiens_batch.records import Level
from sapiens_batch.sheets.groups import BODY17


class Derived(NamedTuple):
    """A column that `samples` has beside those of `images`.

    Attributes:
        meaning: One sentence for people.
        needs: The labels that it is made of, for people.
        sql: Expression over `i`, the row of `images`, and `p`, aggregates of its persons; None
            where the job has not what it takes.
        of_persons: Aggregate over the rows of `persons`, or empty.
    """

    name: str
    meaning: str
    needs: str
    sql: Callable[[LabelSet], str | None]
    of_persons: Callable[[LabelSet], str] | None = None


def connect(labels: LabelSet, text: str) -> Any:
    """A DuckDB connection with `images`, `persons` and `samples` of a job.

    Derived columns are made where the SQL that will be run, `text`, names them.

    Raises:
        DependencyError: duckdb is not installed.
        SpecError: The text names a derived column that the job has no labels for.
    """
    try:
        import duckdb
    except ImportError as error:
        raise DependencyError(
            f"curating needs duckdb: pip install 'sapiens-batch[curate]' ({error})"
        ) from error
    connection = duckdb.connect(config={"enable_external_access": "false"})
    for name, dataset in (("images", labels.images), ("persons", labels.persons)):
        connection.register(name, _readable(dataset))
    connection.execute(samples_view(labels, text))
    return connection


def samples_view(labels: LabelSet, text: str) -> str:
    """The statement that makes `samples` with the derived columns that some SQL names.

    Raises:
        SpecError: The job has no labels for a derived column.
    """
    words = set(re.findall(r"\w+", text))
    columns, aggregates = [], []
    for one in DERIVED:
        if one.name not in words or one.name in labels.images.schema.names:
            continue
        expression = one.sql(labels)
        if expression is None:
            raise SpecError(
                f"{one.name} ({one.meaning}) needs {one.needs}, which job {labels.job.name!r} does "
                f"not have; it has {_tasks(labels)}"
            )
        columns.append(f"{expression} AS {one.name}")
        if one.of_persons is not None:
            aggregates.append(f"{one.of_persons(labels)} AS {one.name}")
    selected = ", ".join(["i.*", *columns])
    statement = f"CREATE TEMP VIEW samples AS SELECT {selected} FROM images i"
    if not aggregates:
        return statement
    grouped = (
        f'SELECT shard_id, "index", {", ".join(aggregates)} FROM persons GROUP BY shard_id, "index"'
    )
    return (
        f'{statement} LEFT JOIN ({grouped}) p ON i.shard_id = p.shard_id AND i."index" = p."index"'
    )


def columns(labels: LabelSet) -> list[str]:
    """What a condition on `samples` may name: columns of `images`, then derived ones."""
    stored = _readable(labels.images).schema.names
    derived = [one.name for one in DERIVED if one.sql(labels) is not None]
    return list(dict.fromkeys([*stored, *derived]))


def _tasks(labels: LabelSet) -> str:
    """The tasks of a job, with what they label."""
    return ", ".join(f"{name} of {one.level.table}" for name, one in labels.schemas.items())


def _foreground_share(labels: LabelSet) -> str | None:
    share = "1 - i.seg_class_pixels[1] / list_sum(i.seg_class_pixels)"
    return share if _has_classes(labels) else None


def _class_share(labels: LabelSet) -> str | None:
    if not _has_classes(labels):
        return None
    names = ", ".join(f"'{name}'" for name in labels.schemas["seg"].metadata["classes"])
    shares = "list_transform(i.seg_class_pixels, lambda n: n / list_sum(i.seg_class_pixels))"
    return f"map([{names}], {shares})"


def _has_classes(labels: LabelSet) -> bool:
    """Whether class 0 is known to be the background."""
    schema = labels.schemas.get("seg")
    classes = (schema.metadata.get("classes") or [""]) if schema else [""]
    return schema is not None and schema.level is Level.IMAGE and classes[0] == "Background"


def _scores(labels: LabelSet) -> str | None:
    """DuckDB list of the body's scores of one person, or None where there are no keypoints."""
    schema = labels.schemas.get("pose")
    names = (schema.metadata.get("keypoints") or []) if schema else []
    places = [str(names.index(one) + 1) for one in BODY17 if one in names]
    return f"list_avg(list_select(keypoint_scores, [{', '.join(places)}]))" if places else None


_OF_CLASSES: Final = "`seg` of whole images (without `region: person`) with named classes"
_OF_KEYPOINTS: Final = "`pose` with named keypoints"

DERIVED: Final = (
    Derived(
        "foreground_share",
        "share of the picture that is no background, from the class areas",
        _OF_CLASSES,
        _foreground_share,
    ),
    Derived(
        "class_share",
        "share of the picture by class name, as class_share['Hair']",
        _OF_CLASSES,
        _class_share,
    ),
    Derived(
        "body_score",
        "mean score of the 17 body keypoints, over the persons of the sample",
        _OF_KEYPOINTS,
        lambda labels: _scores(labels) and "p.body_score",
        lambda labels: f"avg({_scores(labels)})",
    ),
    Derived(
        "worst_body_score",
        "least of the persons' mean scores of the 17 body keypoints",
        _OF_KEYPOINTS,
        lambda labels: _scores(labels) and "p.worst_body_score",
        lambda labels: f"min({_scores(labels)})",
    ),
    Derived(
        "largest_person_share",
        "area of the largest person's box over the picture's",
        "boxes of persons",
        lambda labels: "p.largest_person_share / (i.height::DOUBLE * i.width)",
        lambda labels: "max(bbox[3]::DOUBLE * bbox[4])",
    ),
)
"""Every derived column of `samples`."""


def _readable(dataset: ds.Dataset) -> ds.Dataset:
    """The dataset without float16 columns, which DuckDB cannot read."""
    kept = [field for field in dataset.schema if not _is_half(field.type)]
    loose: Any = dataset  # the stubs say that this returns nothing
    readable: ds.Dataset = loose.replace_schema(pa.schema(kept))
    return readable


def _is_half(kind: pa.DataType) -> bool:
    while pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return bool(pa.types.is_float16(kind))
