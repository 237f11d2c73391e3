"""List a folder of an object store page by page, so that a million objects need no memory.

fsspec itself returns a listing as one dictionary, about a kilobyte an object. S3 is listed through
its own request; other stores fall back to fsspec's whole listing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from sapiens_batch.storage.base import ObjectInfo

Request = Callable[[Callable[[], Any]], Any]

PAGE_OBJECTS: Final = 1000
"""The most that S3 returns at once."""


def list_folder(fs: Any, root: str, folder: str, request: Request) -> Iterator[ObjectInfo]:
    """Every object below a folder.

    Args:
        fs: The fsspec filesystem.
        root: The path that keys are relative to.
        folder: The path to list, without a trailing slash.
        request: Runs one request to the store, repeating it where that helps.

    Raises:
        MissingObjectError: There is no such folder, on stores that know folders.
        StorageError: The store refused.
    """
    if hasattr(fs, "call_s3"):
        yield from _s3_pages(fs, root, folder, request)
        return
    found: Mapping[str, Mapping[str, Any]] = request(lambda: fs.find(folder, detail=True))
    for path in sorted(found):
        info = found[path]
        yield ObjectInfo(path[len(root) + 1 :], int(info["size"]), modified_s(info))


def _s3_pages(fs: Any, root: str, folder: str, request: Request) -> Iterator[ObjectInfo]:
    bucket, prefix, _ = fs.split_path(f"{folder}/")
    skip = len(root) + 1 - len(bucket) - 1
    arguments = {"Bucket": bucket, "Prefix": prefix, "MaxKeys": PAGE_OBJECTS, **fs.req_kw}
    while True:
        page = request(lambda: fs.call_s3("list_objects_v2", **arguments))
        for entry in page.get("Contents", ()):
            # some servers list the folders that other tools made as empty objects
            if not entry["Key"].endswith("/"):
                yield ObjectInfo(
                    entry["Key"][skip:], int(entry["Size"]), entry["LastModified"].timestamp()
                )
        if not page.get("IsTruncated"):
            return
        arguments["ContinuationToken"] = page["NextContinuationToken"]


def modified_s(info: Mapping[str, Any]) -> float:
    """Unix time at which a store dates an object; 0.0 where it does not."""
    for name in ("LastModified", "mtime", "last_modified", "updated", "created"):
        value = info.get(name)
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, datetime):
            return value.timestamp()
    return 0.0
