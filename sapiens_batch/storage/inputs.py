"""Find the objects of the corpus: expand addresses, list and stat.

Reading them is left to `storage.reading`, how a store is reached to `storage.filesystems`. Listings
are never answered from a cache, and keys are relative to the constant part of an address, so that
they survive a move of the corpus.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from sapiens_batch.errors import InputError
from sapiens_batch.storage.addresses import (
    absolute_uri,
    join_uri,
    parent_uri,
    public_uri,
    with_secrets,
)
from sapiens_batch.storage.braces import constant_prefix, expand_braces
from sapiens_batch.storage.filesystems import Options, is_local, open_filesystem
from sapiens_batch.storage.input_errors import MissingInputError, listing_errors, translated_errors
from sapiens_batch.storage.reading import read_input
from sapiens_batch.storage.versions import fingerprint, size_of, version_of

STAT_ONE_BY_ONE = 16
"""Up to so many names of one folder are asked for singly; more are looked up in a listing."""

_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class InputObject:
    """One object of the corpus.

    Attributes:
        uri: Absolute address; a plain path for local files.
        key: Name relative to the longest constant folder of the address that found it.
        size_bytes: Size of the object.
        version: Etag where the store has one, else `size-mtime_ns`.
    """

    uri: str
    key: str
    size_bytes: int
    version: str

    @property
    def fingerprint(self) -> str:
        """8 hex digits that change with the object."""
        return fingerprint(self.size_bytes, self.version)


def expand(
    uris: Sequence[str], storage_options: Options | None = None, *, instead: str = "its files"
) -> list[InputObject]:
    """List the objects that the addresses stand for, sorted by key.

    An address is a plain name, a pattern with braces or globs, or `@file` naming a text file with
    one address a line (relative to that file's folder).

    Args:
        uris: The addresses.
        storage_options: Passed to fsspec.
        instead: What to name where an address is a folder, for the message; `{}` is the folder.

    Raises:
        InputError: An address matches nothing or is a folder, a name that it spells out does not
            exist, two addresses give the same key, or the store cannot be listed.
    """
    found: dict[str, InputObject] = {}
    for uri in uris:
        for item in _expand_one(uri, storage_options or {}, instead):
            if (earlier := found.setdefault(item.key, item)) is not item:
                raise InputError(
                    f"{earlier.uri} and {item.uri} (from {uri!r}) have the same key {item.key!r}: "
                    "name each object once, and write several folders as one pattern such as "
                    "'corpus/{a,b}/*', so that the folder becomes part of the key"
                )
    return [found[key] for key in sorted(found)]


def stat_input(uri: str, storage_options: Options | None = None) -> InputObject:
    """Size and version of one object, asked of the store now; the key is its last name.

    Raises:
        MissingInputError: The object does not exist.
        InputError: It is a folder or may not be read.
        OSError: The store failed.
    """
    with translated_errors(uri):
        system, path = open_filesystem(uri, storage_options)
        info = system.info(path)
        if info["type"] == "directory":
            raise InputError(f"{uri} is a folder, not a file: give a file in it")
        return _input_object(info, absolute_uri(uri), posixpath.basename(absolute_uri(uri)))


def find_inputs(
    uris: Sequence[str], storage_options: Options | None = None
) -> dict[str, InputObject]:
    """Those of the absolute addresses that exist, by address; asks once a folder where many are.

    Raises:
        InputError: A folder cannot be listed.
    """
    return {
        uri: _input_object(info, uri, posixpath.basename(uri))
        for uri, info in _look_up(uris, storage_options or {}).items()
        if info["type"] != "directory"
    }


def list_folder(
    uri: str, suffixes: Iterable[str] = (), storage_options: Options | None = None
) -> list[InputObject]:
    """Every file below a folder, sorted by key; the key is the path relative to the folder.

    Links are followed, each folder once. Hidden names are not filtered here.

    Args:
        uri: Path or address of the folder.
        suffixes: Lower-case suffixes without dot to keep, whatever the case; empty keeps all.
        storage_options: Passed to fsspec.

    Raises:
        InputError: The folder does not exist or cannot be listed.
    """
    wanted = tuple("." + suffix for suffix in suffixes)
    with listing_errors(uri):
        system, path = open_filesystem(uri, storage_options)
        info = system.info(path)
        if info["type"] != "directory":
            raise InputError(
                f"{uri} is a file, not a folder: name the folder that holds the images"
            )
        root = absolute_uri(uri).rstrip("/")
        objects = [
            _input_object(entry, f"{root}/{key}", key)
            for key, entry in _walk(system, path, "", set())
            if not wanted or key.lower().endswith(wanted)
        ]
    return sorted(objects, key=lambda item: item.key)


def _walk(system: Any, path: str, prefix: str, seen: set[str]) -> Iterator[tuple[str, Any]]:
    """Files below `path` as (relative key, info), through links but into no folder twice."""
    if is_local(system):
        real = str(Path(path).resolve())
        if real in seen:
            return
        seen.add(real)
    for entry in system.ls(path, detail=True):
        name = entry["name"].rstrip("/")
        if name == path.rstrip("/"):
            continue
        key = prefix + posixpath.basename(name)
        if entry.get("islink"):
            with contextlib.suppress(FileNotFoundError):
                entry = system.info(name)
        if entry["type"] == "directory":
            yield from _walk(system, name, key + "/", seen)
        else:
            yield key, entry


def _expand_one(uri: str, options: Options, instead: str) -> list[InputObject]:
    if uri.startswith("@"):
        return _expand_list(uri[1:], options, instead)
    pattern = absolute_uri(uri)
    base = _constant_folder(pattern)
    names = expand_braces(pattern)
    plain = [name for name in names if not _GLOB.search(name)]
    found = _stat_all(plain, uri, options, instead)
    for name in names:
        if _GLOB.search(name):
            found += _glob(name, options)
    return [_input_object(info, name, name.removeprefix(base)) for name, info in found]


def _expand_list(uri: str, options: Options, instead: str) -> list[InputObject]:
    """Objects named in a text file; names below its folder have keys relative to it."""
    address = absolute_uri(uri)
    base = parent_uri(address)
    text = read_input(address, options).decode("utf-8-sig")
    names = [join_uri(base, line.strip()) for line in text.splitlines() if line.strip()]
    if not names:
        raise InputError(f"{address} names no object: write one address a line")
    if secret := next((name for name in names if public_uri(name) != name), None):
        raise InputError(
            f"{address}: {public_uri(secret)} stands there with a password or a signature, which "
            "would get into the plan; name it in `source.uri`, or put credentials into "
            "`storage_options`"
        )
    return [
        _input_object(info, name, _list_key(name, base))
        for name, info in _stat_all(names, "@" + uri, options, instead)
    ]


def _list_key(name: str, base: str) -> str:
    if name.startswith(base.rstrip("/") + "/"):
        return name[len(base.rstrip("/")) + 1 :]
    path = name.partition("://")[2].partition("/")[2] if "://" in name else name
    return path.lstrip("/")


def _glob(pattern: str, options: Options) -> list[tuple[str, Any]]:
    base = _constant_folder(pattern)
    with listing_errors(pattern):
        system, path = open_filesystem(pattern, options)
        base_path = _path_in(system, base, options).rstrip("/")
        matches = system.glob(path, detail=True)
        files = [_followed(system, info) for info in matches.values()]
    shows_hidden = posixpath.basename(pattern).startswith(".")
    found = [
        (base + info["name"].removeprefix(base_path).lstrip("/"), info)
        for info in files
        if info["type"] != "directory"
        and (shows_hidden or not posixpath.basename(info["name"]).startswith("."))
    ]
    if not found:
        raise InputError(f"nothing matches {pattern!r}: check the address and the pattern")
    return found


def _constant_folder(pattern: str) -> str:
    """The longest folder above everything that the pattern can mean, with its slash."""
    constant = _GLOB.split(constant_prefix(pattern), maxsplit=1)[0]
    return constant.rpartition("/")[0] + "/"


def _path_in(system: Any, uri: str, options: Options) -> str:
    """What a filesystem calls an address."""
    return str(system._strip_protocol(with_secrets(uri, options)[0]))


def _followed(system: Any, info: Any) -> Any:
    return system.info(info["name"]) if info.get("islink") else info


def _stat_all(
    names: Sequence[str], asked: str, options: Options, instead: str
) -> list[tuple[str, Any]]:
    """Look up spelled-out names; report every missing one together."""
    found = _look_up(names, options)
    missing = [name for name in names if name not in found]
    if missing:
        shown = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
        raise MissingInputError(
            f"{len(missing)} of the {len(names)} objects of {asked!r} do not exist: {shown}"
        )
    for name, info in found.items():
        if info["type"] == "directory":
            wanted = instead.replace("{}", name)
            raise InputError(f"{name} is a folder, not a file: name {wanted}")
    return [(name, found[name]) for name in names]


def _look_up(names: Sequence[str], options: Options) -> dict[str, Any]:
    """What the store says of those names that exist, asked folder by folder."""
    found: dict[str, Any] = {}
    for folder, group in groupby(sorted(set(names)), key=parent_uri):
        with listing_errors(folder):
            found.update(_stat_group(list(group), folder, options))
    return found


def _stat_group(names: list[str], folder: str, options: Options) -> dict[str, Any]:
    system, _ = open_filesystem(names[0], options)
    paths = {name: _path_in(system, name, options) for name in names}
    found: dict[str, Any] = {}
    if len(names) <= STAT_ONE_BY_ONE or folder.startswith("http"):
        for name, path in paths.items():
            with contextlib.suppress(FileNotFoundError):
                found[name] = system.info(path)
        return found
    entries: dict[str, Any] = {}
    with contextlib.suppress(FileNotFoundError):
        parent = system._strip_protocol(folder)
        entries = {entry["name"].rstrip("/"): entry for entry in system.ls(parent, detail=True)}
    for name, path in paths.items():
        if path in entries:
            found[name] = _followed(system, entries[path])
    return found


def _input_object(info: Any, uri: str, key: str) -> InputObject:
    return InputObject(uri, key, size_of(info), version_of(info))
