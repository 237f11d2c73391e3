"""Hugging Face datasets: folders that `save_to_disk` wrote, and folders of Parquet as on the Hub.

Only finds the files of one split; they are read as every other table. Local folders and
`hf://datasets/<owner>/<name>[@<revision>][/<folder>]` alike; no dataset script is ever run. A
folder that may hold several configurations is refused, because mixing them labels the wrong images.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from sapiens_batch.errors import InputError
from sapiens_batch.sources.parquet import ParquetSource
from sapiens_batch.storage.input_errors import errors_of_field
from sapiens_batch.storage.inputs import InputObject, list_folder
from sapiens_batch.storage.reading import read_json

DEFAULT_SPLIT = "train"
"""What `datasets` calls files that name no split."""

_SPLIT_WORDS: Mapping[str, str] = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
    "eval": "test",
    "evaluation": "test",
}
"""Words in file and folder names that mean a split, as `datasets` reads them."""

_NUMBERED = re.compile(r"^(.+)-\d{5}-of-\d{5}\b.*\.parquet$")


class HuggingFaceSource(ParquetSource):
    """One split of one configuration; its Arrow or Parquet files are the shards."""

    def objects(self) -> list[InputObject]:
        """The files of the split, sorted by key; see `ParquetSource.objects`."""
        root = self.only_uri("dataset")
        with errors_of_field("source.uri"):
            listed = list_folder(root, ("parquet", "arrow", "json"), self.spec.storage_options)
        found = {item.key: item for item in listed}
        for folder in ("", f"{self._split}/"):
            if f"{folder}state.json" in found:
                return self._saved(found, folder, root)
        if "dataset_dict.json" in found:
            document = read_json(f"{root}/dataset_dict.json", self.spec.storage_options)
            splits = map(str, document.get("splits", []))
            raise self._no_split(root, [one for one in splits if f"{one}/state.json" in found])
        return self._parquet(found, root)

    @property
    def _split(self) -> str:
        return self.spec.split or DEFAULT_SPLIT

    def _saved(self, found: Mapping[str, InputObject], folder: str, root: str) -> list[InputObject]:
        """The Arrow files that the state of a saved dataset lists."""
        where = f"{root}/{folder}state.json"
        state = read_json(where, self.spec.storage_options)
        if state.get("_indices_data_files"):
            raise InputError(f"{where} selects rows of its files: save it after flatten_indices()")
        try:
            names = [folder + entry["filename"] for entry in state["_data_files"]]
            objects = [found[name] for name in names]
        except (KeyError, TypeError) as error:
            raise InputError(f"{where} names files that are not there: {error}") from error
        if not folder and self.spec.split not in (None, state.get("_split")):
            raise self._no_split(root, [str(state.get("_split"))])
        return sorted(objects, key=lambda item: item.key)

    def _parquet(self, found: Mapping[str, InputObject], root: str) -> list[InputObject]:
        by_split: dict[str, list[InputObject]] = defaultdict(list)
        for key, item in found.items():
            if key.endswith(".parquet"):
                by_split[split_of(key)].append(item)
        if not by_split:
            raise InputError(f"{root} holds no Parquet and was not written by save_to_disk")
        if self._split not in by_split:
            raise self._no_split(root, list(by_split))
        objects = by_split[self._split]
        folders = sorted({posixpath.dirname(item.key) for item in objects})
        if len(folders) > 1:
            raise InputError(
                f"{root}: split {self._split!r} is in several folders ({', '.join(folders)}), "
                f"which may be different configurations: name one, such as {root}/{folders[0]}"
            )
        return objects

    def _no_split(self, root: str, splits: Sequence[str]) -> InputError:
        return InputError(
            f"{root} has no split {self._split!r}: name one in `split`, it has "
            f"{', '.join(sorted(splits)) or 'none'}"
        )


def split_of(key: str) -> str:
    """The split that a Parquet file belongs to, by its name or the folders above it."""
    folder, _, name = key.rpartition("/")
    if match := _NUMBERED.match(name):
        return match[1]
    for part in [name, *reversed(folder.split("/"))]:
        words = re.split(r"[^A-Za-z]+", part)
        if split := next((_SPLIT_WORDS[word] for word in words if word in _SPLIT_WORDS), None):
            return split
    return DEFAULT_SPLIT
