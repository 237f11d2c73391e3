"""List a folder of an object store page by page, so that a million objects need no memory.

fsspec itself returns a listing as one dictionary, about a kilobyte an object. S3 is listed through
its own request; other stores fall back to fsspec's whole listing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from sapiens_batch.storage.base import ObjectInfo
from sapiens_batch.storage.filesystems import is_s3
from sapiens_batch.storage.versions import modified_s

Request = Callable[[Callable[[], Any]], Any]

PAGE_OBJECTS: Final = 1000
"""The most that S3 returns at once."""


def list_objects(fs: Any, root: str, folder: str, request: Request) -> Iterator[ObjectInfo]:
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
    if is_s3(fs):
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
