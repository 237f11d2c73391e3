"""Arithmetic on addresses: local paths and `scheme://` URIs alike, without touching a store.

A local address is a plain path, so that no letter in a file name has a meaning.
"""

from __future__ import annotations

import posixpath
from pathlib import Path


def absolute_uri(uri: str) -> str:
    """The address independent of the working folder; `@file` and patterns keep their form."""
    if uri.startswith("@"):
        return "@" + absolute_uri(uri[1:])
    return uri if "://" in uri else posixpath.abspath(Path(uri).expanduser().as_posix())


def join_uri(root: str, name: str) -> str:
    """The address of `name`, which may itself be absolute, seen from the folder `root`.

    `file://a/b.jpg`, as some URL lists have it, names no machine `a` but a path below `root`.
    """
    if name.startswith("file://") and not name.startswith(("file:///", "file://localhost/")):
        name = name.removeprefix("file://")
    if "://" in name or name.startswith("/"):
        return name
    return f"{root.rstrip('/')}/{name}"


def parent_uri(uri: str) -> str:
    """The folder that holds the object."""
    return uri.rpartition("/")[0] or "/"
