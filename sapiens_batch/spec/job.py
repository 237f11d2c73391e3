"""The job file: one pydantic model for YAML, command line and Python.

What changes labels is part of `JobSpec.digest_fields`; what only changes speed is not (I4). Secrets
(`storage_options`, `catalog_options`) are used but never written or hashed. Resolving checkpoints
and listing inputs is left to the models and sources packages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from sapiens_batch.records import FORMAT_VERSION, TaskName
from sapiens_batch.spec.detector import DetectorSpec
from sapiens_batch.spec.section import Section
from sapiens_batch.spec.source_fields import without_effect
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.storage.addresses import keep_secrets_apart, public_text

IMAGE_SUFFIXES = (
    "jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "avif", "heic", "heif", "jxl", "ppm",
    "pgm", "pbm", "pnm", "jp2", "j2k", "ico", "qoi", "jfif", "jpe", "apng", "mpo", "tga",
)  # fmt: skip
"""Names that may hold an image; whether the content is one is found out by decoding."""


LicenceKey = Literal["sapiens2", "cc-by-nc-4.0"]
"""What a person writes to accept the terms of released weights; `models.licences` has the terms."""

_OF_LIBRARIES = ("lance", "delta", "iceberg")
"""Formats whose addresses are opened by a library of their own."""

_Level = Annotated[int, Field(ge=0, le=255)]


class SourceSpec(Section):
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

    @model_validator(mode="before")
    @classmethod
    def _secrets_apart(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        kept = keep_secrets_apart(given, "uri", "root", "select")
        if kept.get("format") in _OF_LIBRARIES and kept.get("storage_options") != given.get(
            "storage_options"
        ):
            raise ValueError("uri: has a password or a signature; put it into `catalog_options`")
        return kept

    @field_validator("shuffle", mode="before")
    @classmethod
    def _never_shuffled(cls, value: Any) -> Any:
        if value is not False:
            raise ValueError(
                "always false: samples keep their stored order, by which a job is resumed; "
                "shuffle what you read from the labels"
            )
        return value

    @model_validator(mode="after")
    def _fields_fit_format(self) -> SourceSpec:
        if faults := without_effect(self.format, self):
            raise ValueError("\n".join(faults))
        return self

    @property
    def gives_boxes(self) -> bool:
        """Whether the source says where persons are."""
        return self.boxes is not None or self.format == "coco"

    @property
    def uris(self) -> list[str]:
        """The addresses as a list."""
        return [self.uri] if isinstance(self.uri, str) else list(self.uri)


class DecodeSpec(Section):
    """How encoded images become pixels."""

    background: tuple[_Level, _Level, _Level] = Field(
        default=(255, 255, 255), description="RGB that transparent pixels are laid over."
    )
    scaled: bool = Field(
        default=False,
        description="Decode large JPEGs at 1/2, 1/4 or 1/8 where every view still has enough "
        "pixels: faster, and slightly other labels.",
    )
    max_pixels: Annotated[int, Field(ge=1)] = Field(
        default=178_956_970, description="Larger images are quarantined before they are decoded."
    )
    timeout_s: Annotated[float, Field(gt=0)] = Field(
        default=60.0, description="Seconds after which an image is quarantined."
    )


class PersonsSpec(Section):
    """Where person boxes come from."""

    origin: Literal["source", "whole_image", "detector"] = Field(
        alias="from",
        default="source",
        description="Boxes of the source, one box per image, or boxes of a detector.",
    )
    max_persons: Annotated[int, Field(ge=1)] = Field(
        default=200, description="Boxes beyond this many are dropped, best scores kept."
    )
    min_size_px: Annotated[float, Field(ge=0)] = Field(
        default=0.0, description="Persons with a shorter side than this are refused."
    )
    on_empty: Literal["keep", "whole_image"] = Field(
        default="keep",
        description="Image without persons: keep it as `empty`, or take it as one person.",
    )
    detector: DetectorSpec | None = Field(
        default=None, description="Settings of the detector, for `from: detector` only."
    )

    @model_validator(mode="after")
    def _detector_fits_origin(self) -> PersonsSpec:
        if self.detector is not None and self.origin != "detector":
            raise ValueError("detector: has no effect without `from: detector`")
        return self

    @property
    def detector_section(self) -> DetectorSpec:
        """The `detector` section, or its defaults."""
        return self.detector or DetectorSpec()


class OutputSpec(Section):
    """Where labels go."""

    uri: str = Field(description="Folder or fsspec address of the job directory.")
    storage_options: dict[str, Any] = Field(
        default_factory=dict, repr=False, description="Passed to fsspec; never stored."
    )
    chunk_samples: Annotated[int, Field(ge=1, le=4096)] = Field(
        default=32,
        description="Samples per chunk: one call of a label actor, one array object, one receipt.",
    )
    single_driver: bool = Field(
        default=False,
        description="Your promise that only one driver works on the job at a time. For stores that "
        "cannot create an object only if it is not there, which are refused without it.",
    )

    @model_validator(mode="before")
    @classmethod
    def _secrets_apart(cls, given: Any) -> Any:
        return keep_secrets_apart(given, "uri") if isinstance(given, Mapping) else given


class ErrorsSpec(Section):
    """When to stop a job that is going wrong, and when to suspect a single sample."""

    max_quarantined: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="Stop with exit 4 when more samples are quarantined."
    )
    max_quarantined_fraction: Annotated[float, Field(ge=0, le=1)] = Field(
        default=1.0,
        description="Stop with exit 4 when a larger share of the samples so far is quarantined; "
        "looked at from the 100th sample on, and at the end.",
    )
    max_attempts: Annotated[int, Field(ge=1)] = Field(
        default=3,
        description="Times that a chunk may fail or end its worker before its samples are labeled "
        "one by one in a process of their own.",
    )
    sample_timeout_s: Annotated[float, Field(gt=0)] = Field(
        default=600.0, description="Seconds that a sample labeled on its own may take."
    )


def _check_device(name: str) -> str:
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise ValueError("give auto, cpu, cuda or cuda:N")
    return name


_Device = Annotated[str, AfterValidator(_check_device)]


class RuntimeSpec(Section):
    """How the job runs; none of this changes labels beyond the stated tolerance."""

    device: _Device = Field(
        default="auto",
        description="auto, cpu, cuda, or cuda:N. On a cluster without a GPU yet, cuda asks for "
        "one and waits; auto takes the CPU.",
    )
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        default="float32", description="Precision of the forward pass."
    )
    batch_views: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        default="auto", description="Views per forward pass."
    )
    compile: bool = Field(
        default=False,
        description="Encoders go through torch.compile: some minutes at the start of each actor, "
        "less time for each view. Needs a C++ compiler, and Triton on a GPU.",
    )
    label_actors: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        default="auto",
        description="Label actors, one a GPU, that are asked for, also where there are not so many "
        "GPUs yet: the limit of what an autoscaling cluster spends on this job. auto: the GPUs "
        "that there are and those that join; one where labels are made on the CPU.",
    )
    prepare_tasks: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        default="auto",
        description="Tasks that read and prepare at a time; auto: as many as there are CPUs, or, "
        "where labels are made on the CPU, one for two threads that make them.",
    )
    actor_max_chunks: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="A label actor is replaced after so many chunks, so that what libraries leak "
        "stays bounded; it loads the models again.",
    )
    no_progress_timeout_s: Annotated[float, Field(gt=0)] = Field(
        default=600.0,
        description="When no chunk leaves any stage for so long, waiting for the first GPU not "
        "counted, work in flight is given up and tried again. Must be more than a chunk takes, and "
        "than loading the models.",
    )
    ray_address: str | None = Field(
        default=None, description="Ray cluster to join; default: RAY_ADDRESS, else a local one."
    )


def _public(value: Any) -> Any:
    """The JSON value with all addresses in it made public, of models as well."""
    if isinstance(value, dict):
        return {name: _public(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_public(one) for one in value]
    return public_text(value) if isinstance(value, str) else value


class JobSpec(Section):
    """A whole job file."""

    name: str = Field(
        min_length=1,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="What the job is called: letters, digits, `.`, `_` and `-`.",
    )
    source: SourceSpec
    persons: PersonsSpec | None = Field(
        default=None, description="Where persons come from; default: the source's boxes for pose."
    )
    decode: DecodeSpec = DecodeSpec()
    tasks: dict[TaskName, TaskSpec] = Field(
        min_length=1, description="What to label: a section for each task, under the task's name."
    )
    accept_licences: list[LicenceKey] = Field(
        default_factory=list,
        description="Keys of the licences of released weights that you accept, for example "
        "`sapiens2`; the refusal without it shows the terms.",
    )
    output: OutputSpec
    errors: ErrorsSpec = ErrorsSpec()
    runtime: RuntimeSpec = RuntimeSpec()

    @field_validator("tasks")
    @classmethod
    def _settings_fit_tasks(cls, tasks: dict[TaskName, TaskSpec]) -> dict[TaskName, TaskSpec]:
        for name, task in tasks.items():
            task.check_owner(name)
        return tasks

    @property
    def persons_section(self) -> PersonsSpec:
        """The `persons` section, or its defaults."""
        return self.persons or PersonsSpec()

    def public_dict(self) -> dict[str, Any]:
        """The spec as JSON values without secrets, for `job.json`."""
        fields = self.model_dump(
            mode="json",
            by_alias=True,
            exclude={
                "source": {"storage_options", "catalog_options"},
                "output": {"storage_options"},
            },
        )
        return {name: _public(value) for name, value in fields.items()}

    def digest_fields(
        self,
        weights: Mapping[TaskName, str],
        *,
        select_digest: str | None = None,
        detector_digest: str | None = None,
    ) -> dict[str, Any]:
        """What decides the labels of a given image, as JSON values (invariant I4).

        Args:
            weights: Digest of each task's checkpoint; it stands for id, path and revision.
            select_digest: Digest of what `source.select` lists, which stands for its address.
            detector_digest: Digest of the person detector, which stands for its id, where there
                is one.
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
            "persons": self._persons_fields(detector_digest),
            "decode": {k: v for k, v in public["decode"].items() if k != "timeout_s"},
            "tasks": tasks,
            "chunk_samples": self.output.chunk_samples,
            "dtype": self.runtime.dtype,
        }

    def _persons_fields(self, detector_digest: str | None) -> dict[str, Any] | None:
        if self.persons is None:
            return None
        fields = self.persons.model_dump(mode="json", by_alias=True)
        fields["detector"] = None
        if self.persons.origin == "detector":
            detector = self.persons.detector_section
            fields["detector"] = {
                "weights": detector_digest,
                "score_threshold": detector.threshold,
                "nms_iou": detector.nms_iou,
            }
        return fields
