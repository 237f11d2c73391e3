"""The job file: one pydantic model for YAML, command line and Python.

What changes labels is part of `JobSpec.digest_fields`; what only changes speed is not (I4). Secrets
(`storage_options`, `catalog_options`) are used but never written or hashed. Resolving checkpoints
and listing inputs is left to the models and sources packages.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sapiens_batch.errors import SpecError
from sapiens_batch.records import Preprocess, TaskName

FORMAT_VERSION = 1
"""Version of the on-disk format and of the label schemas; part of the spec digest."""

IMAGE_SUFFIXES = (
    "jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "avif", "heic", "heif", "jxl", "ppm",
    "pgm", "pbm", "pnm", "jp2", "j2k", "ico", "qoi", "jfif", "jpe", "apng", "mpo", "tga",
)  # fmt: skip
"""Names that may hold an image; whether the content is one is found out by decoding."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class SourceSpec(_Section):
    """Where the images are and how to read them."""

    format: Literal[
        "webdataset", "parquet", "images", "listing", "coco",
        "huggingface", "lance", "delta", "iceberg",
    ] = Field(description="How the corpus is stored.")  # fmt: skip
    uri: str | list[str] = Field(
        description="Path or fsspec address; braces {000..999}, globs, or `@file` with one address "
        "a line. A folder for `images`, the annotation file for `coco`, a dataset or table for "
        "`huggingface`, `lance`, `delta`; a metadata file or iceberg://catalog/table for `iceberg`."
    )
    storage_options: dict[str, Any] = Field(
        default_factory=dict, repr=False, description="Passed to fsspec; never stored."
    )
    catalog_options: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="Passed to the library of `lance`, `delta` or `iceberg`; never stored.",
    )
    image: list[str] = Field(
        default_factory=list,
        description="webdataset: member suffixes in order of preference; tables: the image "
        "columns, several give several samples a row. Empty: every image suffix, or the only "
        "image-like column.",
    )
    key: str | None = Field(
        default=None, description="Tables: the column that holds the sample's key."
    )
    uri_column: str | None = Field(
        default=None, description="listing: the column of image paths or addresses."
    )
    companion: str = Field(
        default="auto",
        description="webdataset: the Parquet that img2dataset writes beside a tar. `auto` takes "
        "{stem}.parquet where there is one, `none` looks for none, else a path seen from the tar.",
    )
    split: str | None = Field(
        default=None, description="huggingface: the split to read; default `train`."
    )
    snapshot: int | None = Field(
        default=None, description="lance, delta: version; iceberg: snapshot id. Default: newest."
    )
    select: str | None = Field(
        default=None,
        description="A .npy of keys or 128-bit uids, or a Parquet with a column `uid` or `key`: "
        "only these samples are read.",
    )
    select_by: str | None = Field(
        default=None,
        description="Column or JSON field that `select` lists; default `uid` where it lists uids, "
        "else the sample's own key.",
    )
    boxes: str | None = Field(
        default=None, description="Column or JSON member field with COCO xywh boxes."
    )
    box_scores: str | None = Field(
        default=None, description="Column or JSON member field with one score a box."
    )
    root: str | None = Field(
        default=None,
        description="Folder that relative image paths are resolved against (coco, listing, "
        "parquet paths). Default: the folder of the file that names them.",
    )
    columns: list[str] = Field(
        default_factory=list, description="Source columns or JSON fields to keep in `images`."
    )
    shard_samples: Annotated[int, Field(ge=1)] = Field(
        default=1000, description="Images per shard for sources that are listings of files."
    )
    limit: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Read only the first so many shards, in the order of their keys."
    )
    shuffle: Literal[False] = Field(
        default=False, description="Always false: samples keep the order in which they are stored."
    )

    @property
    def uris(self) -> list[str]:
        """The addresses as a list."""
        return [self.uri] if isinstance(self.uri, str) else list(self.uri)


class PersonsSpec(_Section):
    """Where person boxes come from."""

    origin: Literal["source", "whole_image"] = Field(
        alias="from", default="source", description="Boxes of the source, or one box per image."
    )
    max_persons: Annotated[int, Field(ge=1)] = Field(
        default=200, description="Boxes beyond this many are dropped, best scores kept."
    )


class TaskSpec(_Section):
    """One label task."""

    checkpoint: str = Field(
        description="Hub id, folder, .safetensors file, or `demo` for built-in random weights."
    )
    revision: str | None = Field(default=None, description="Hub revision; pinned when resolved.")
    preprocess: Preprocess = Field(
        default=Preprocess.TRANSFORMERS, description="Whose resampling the model input reproduces."
    )
    rope_dtype: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="float32 as the transformers port computes, bfloat16 as the original does.",
    )
    flip_test: bool = Field(
        default=False, description="Average with the labels of the mirrored view."
    )
    dtype: Literal["float16", "float32"] = Field(
        default="float16", description="Stored precision of numeric arrays."
    )
    raw: bool = Field(default=False, description="embedding: keep the unnormalised vector too.")


class OutputSpec(_Section):
    """Where labels go."""

    uri: str = Field(description="Folder or fsspec address of the job directory.")
    storage_options: dict[str, Any] = Field(
        default_factory=dict, repr=False, description="Passed to fsspec; never stored."
    )
    chunk_samples: Annotated[int, Field(ge=1, le=4096)] = Field(
        default=32, description="Samples per chunk: one GPU call, one array object, one receipt."
    )


class ErrorsSpec(_Section):
    """When to stop a job that is going wrong."""

    max_quarantined_fraction: Annotated[float, Field(ge=0, le=1)] = Field(
        default=1.0, description="Exit 4 when a larger share of samples is quarantined."
    )
    max_attempts: Annotated[int, Field(ge=1)] = Field(
        default=3, description="Passes over chunks that failed before the job gives up."
    )


class RuntimeSpec(_Section):
    """How the job runs; none of this changes labels beyond the stated tolerance."""

    device: str = Field(default="auto", description="auto, cpu, cuda, or cuda:N.")
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        default="float32", description="Precision of the forward pass."
    )
    batch_views: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        default="auto", description="Views per forward pass."
    )
    label_actors: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        default="auto", description="GPU actors; auto: one per GPU of the cluster, else one."
    )
    prepare_tasks: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        default="auto", description="Concurrent decoding tasks."
    )
    ray_address: str | None = Field(
        default=None, description="Ray cluster to join; default: RAY_ADDRESS, else a local one."
    )


class JobSpec(_Section):
    """A whole job file."""

    name: Annotated[str, Field(min_length=1, pattern=r"^[A-Za-z0-9._-]+$")]
    source: SourceSpec
    persons: PersonsSpec | None = Field(
        default=None, description="Where persons come from; default: the source's boxes for pose."
    )
    tasks: dict[TaskName, TaskSpec] = Field(min_length=1)
    output: OutputSpec
    errors: ErrorsSpec = ErrorsSpec()
    runtime: RuntimeSpec = RuntimeSpec()

    @model_validator(mode="after")
    def _tasks_fit_persons(self) -> JobSpec:
        for name, task in self.tasks.items():
            if task.raw and name != "embedding":
                raise ValueError(f"tasks.{name}.raw: only `embedding` has a raw vector to keep")
        return self

    @property
    def persons_section(self) -> PersonsSpec:
        """The `persons` section, or its defaults."""
        return self.persons or PersonsSpec()

    def public_dict(self) -> dict[str, Any]:
        """The spec as JSON values without secrets, for `job.json`."""
        return self.model_dump(
            mode="json",
            by_alias=True,
            exclude={
                "source": {"storage_options", "catalog_options"},
                "output": {"storage_options"},
            },
        )

    def digest_fields(
        self, weights: Mapping[TaskName, str], *, select_digest: str | None = None
    ) -> dict[str, Any]:
        """What decides the labels of a given image, as JSON values (invariant I4).

        Args:
            weights: Digest of each task's checkpoint; it stands for id, path and revision.
            select_digest: Digest of what `source.select` lists, which stands for its address.
        """
        public = self.public_dict()
        tasks = {
            name: {
                **{k: v for k, v in section.items() if k not in ("checkpoint", "revision")},
                "weights": weights[name],
            }
            for name, section in public["tasks"].items()
        }
        kept = (
            "format", "image", "key", "boxes", "box_scores", "columns", "uri_column", "companion",
            "select_by",
        )  # fmt: skip
        source = {name: public["source"][name] for name in kept} | {"select": select_digest}
        return {
            "format_version": FORMAT_VERSION,
            "source": source,
            "persons": public["persons"],
            "tasks": tasks,
            "chunk_samples": self.output.chunk_samples,
            "dtype": self.runtime.dtype,
        }


def digest(fields: Mapping[str, Any]) -> str:
    """Hex sha256 of JSON values in canonical form."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def differences(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> list[str]:
    """Lines `field: old -> new` for every JSON value that differs, in field order."""
    lines = []
    for name in sorted({*before, *after}):
        where = f"{path}.{name}" if path else name
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            lines += differences(old, new, where)
        elif old != new:
            lines.append(f"{where}: {_shown(old)} -> {_shown(new)}")
    return lines


def _shown(value: Any) -> str:
    return "(absent)" if value is None else json.dumps(value, ensure_ascii=False)


def load_spec(path: Path, overrides: Sequence[str] = ()) -> JobSpec:
    """Read and validate a job file.

    `${NAME}` in any string is replaced by the environment variable.

    Args:
        path: The YAML file.
        overrides: `dotted.field=value` assignments, values parsed as YAML, applied last.

    Raises:
        SpecError: The file is missing or no YAML mapping, a variable is unset, an override has no
            `=`, or a field breaks a rule; the message lists field, rule and value of every fault.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"job file {path} cannot be read: {error}") from error
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SpecError(f"job file {path} is not valid YAML: {error}") from error
    if not isinstance(values, dict):
        raise SpecError(
            f"job file {path} must be a mapping of sections, found {type(values).__name__}"
        )
    for assignment in overrides:
        _override(values, assignment)
    return parse_spec(_interpolate(values), origin=str(path))


def parse_spec(values: Mapping[str, Any], origin: str = "job spec") -> JobSpec:
    """Validate a job given as plain values.

    Raises:
        SpecError: A field breaks a rule; the message lists every fault.
    """
    try:
        return JobSpec.model_validate(values)
    except ValidationError as error:
        faults = "\n".join(f"  {_fault(dict(item))}" for item in error.errors())
        raise SpecError(f"{origin} has {error.error_count()} fault(s):\n{faults}") from error


def _fault(item: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in item["loc"] if part != "[key]") or "(top level)"
    if item["type"] == "missing":
        return f"{where}: required, but absent"
    if item["type"] == "extra_forbidden":
        close = difflib.get_close_matches(str(item["loc"][-1]), _field_names(JobSpec), n=1)
        hint = f"; did you mean `{close[0]}`?" if close else ""
        return f"{where}: no such field{hint}"
    return f"{where}: {item['msg']}; found {item['input']!r}"


def _field_names(model: type[BaseModel]) -> list[str]:
    names = []
    for name, field in model.model_fields.items():
        names.append(field.alias or name)
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                names += _field_names(kind)
    return names


def _override(values: dict[str, Any], assignment: str) -> None:
    path, separator, text = assignment.partition("=")
    if not separator:
        raise SpecError(f"--set {assignment}: expected dotted.field=value")
    *parents, last = path.split(".")
    target = values
    for name in parents:
        target = target.setdefault(name, {})
        if not isinstance(target, dict):
            raise SpecError(f"--set {assignment}: `{name}` is not a section")
    target[last] = yaml.safe_load(text)


def _interpolate(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _interpolate(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_interpolate(item) for item in value]
    if isinstance(value, str):
        return re.sub(r"\$\{(\w+)\}", _variable, value)
    return value


def _variable(match: re.Match[str]) -> str:
    name = match.group(1)
    if name not in os.environ:
        raise SpecError(f"${{{name}}} in the job file: the environment variable {name} is not set")
    return os.environ[name]
