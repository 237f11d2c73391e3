"""The dataset card of a Hugging Face export: what is in it, from which models, on what terms.

The block at the top is YAML that the Hub reads; the rest is for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from sapiens_batch.export.provenance import summary
from sapiens_batch.export.records import label_columns
from sapiens_batch.labelset import LabelSet
from sapiens_batch.records import Level

_CATEGORIES = {
    "pose": "keypoint-detection",
    "seg": "image-segmentation",
    "pointmap": "depth-estimation",
    "embedding": "image-feature-extraction",
}
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"),
          (10**7, "1M<n<10M"), (10**8, "10M<n<100M"), (10**9, "100M<n<1B"))  # fmt: skip


def dataset_card(
    labels: LabelSet,
    origin: Mapping[str, Any],
    *,
    features: Mapping[str, Any],
    split: str,
    licence: str,
    num_samples: int,
    size_bytes: int,
) -> str:
    """The text of `README.md`.

    Args:
        labels: The job's labels.
        origin: What `provenance` says about the job.
        features: The columns.
        split: Name of the split.
        licence: Id of the dataset's licence on the Hub.
        num_samples: Rows.
        size_bytes: Size of the data files.
    """
    head = {
        "pretty_name": origin["job"],
        "license": licence,
        "task_categories": [_CATEGORIES[one] for one in labels.schemas if one in _CATEGORIES],
        "size_categories": [next((name for limit, name in _SIZES if num_samples < limit), "n>1T")],
        "tags": ["sapiens2", "human", "pseudo-labels"],
        "configs": [
            {"config_name": "default",
             "data_files": [{"split": split, "path": f"data/{split}-*.parquet"}]}
        ],
    }  # fmt: skip
    front = yaml.safe_dump(head, sort_keys=False, allow_unicode=True)
    return "\n".join(
        [
            f"---\n{front}---\n",
            f"# {origin['job']}\n",
            *_warning(origin),
            f"{summary(origin)}\n",
            f"{num_samples} samples, {size_bytes / 1e6:.1f} MB. Labels were made by models and "
            "were not checked by people.\n",
            "## Models\n",
            *_models(origin),
            "\n## Columns\n",
            *_columns(labels, features),
            "\n## Conventions\n",
            *(f"- {name}: {text}" for name, text in origin["conventions"].items()),
            "- depth: millimetres along the optical axis, 0 where unknown",
            "- seg: pixel values are classes, 255 where there is no label",
            "\n## Licences\n",
            "The photos keep the licences of their source. The models' licences:\n",
            *(f"- {model}: {text}" for model, text in origin["licences"].items()),
            "",
        ]
    )


def _warning(origin: Mapping[str, Any]) -> list[str]:
    return [f"> **Warning:** {origin['warning']}.\n"] if origin["warning"] else []


def _models(origin: Mapping[str, Any]) -> list[str]:
    lines = ["| task | model | revision | weights |", "|---|---|---|---|"]
    for task, one in origin["tasks"].items():
        weights = str(one.get("weights_sha256") or "")[:12]
        lines.append(f"| {task} | {one.get('model')} | {one.get('revision') or ''} | {weights} |")
    return lines


def _columns(labels: LabelSet, features: Mapping[str, Any]) -> list[str]:
    images = {one.name: one for one in label_columns(labels, Level.IMAGE)}
    lines = []
    for name in features:
        column = images.get(name)
        text = f": {column.description}" if column and column.description else ""
        lines.append(f"- `{name}`{text}")
    for column in label_columns(labels, Level.PERSON):
        text = f": {column.description}" if column.description else ""
        lines.append(f"- `persons[].{column.name}`{text}")
    return lines
