"""Arithmetic on addresses: local paths and `scheme://` URIs alike, without touching a store.

A local address is a plain path, so that no letter in a file name has a meaning. Secrets in an
address (user, password, signature) are taken out when the job file is read: what is stored or shown
has none.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

SECRETS: Final = "address_secrets"
"""Where `storage_options` keep what was taken out of addresses; no filesystem is given it."""

_URI = re.compile(r"@?[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>\\]+")
_USER = re.compile(
    r"(?P<scheme>@?[A-Za-z][A-Za-z0-9+.-]*://)"
    r"(?P<user>[^/?#@]*@|[^/?#@:]+:(?!\d*/)[^?#@]*@)"  # a password may hold slashes, a port not
)
_CONTAINER_SCHEMES = ("abfs://", "abfss://", "wasb://", "wasbs://")
"""Azure's addresses begin with `container@account`, which is no secret."""

_SIGNED = re.compile(
    r"(^|&)(x-(amz|goog|oss|cos)-\w+|(q-)?sig(nature)?|policy|\w*access_?key_?id|\w*(token|secret)"
    r"|pass(word|wd)?|auth(key)?|api_?key|key)=",
    re.IGNORECASE,
)


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


def public_uri(uri: str) -> str:
    """The address without user and password, and without its query if that signs it."""
    return _split(uri)[0]


def public_text(text: str) -> str:
    """The text with every address in it made public."""
    return _URI.sub(lambda match: public_uri(match[0]), text) if "://" in text else text


def keep_secrets_apart(section: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The fields of a section with public addresses; the secrets go into its `storage_options`.

    So nothing that stores or shows an address can give them away, and who is given the options can
    still read it, by `with_secrets`.

    Args:
        section: Fields as they were written, not validated yet.
        names: Those that hold an address, or a list of them.
    """
    kept, secrets = dict(section), []
    for name in names:
        given = section.get(name)
        for uri in given if isinstance(given, list) else [given]:
            if isinstance(uri, str) and (split := _split(uri))[0] != uri:
                secrets.append(split)
        if isinstance(given, str):
            kept[name] = public_uri(given)
        elif isinstance(given, list):
            kept[name] = [public_uri(one) if isinstance(one, str) else one for one in given]
    options = section.get("storage_options") or {}
    if secrets and isinstance(options, Mapping):
        kept["storage_options"] = {**options, SECRETS: [*options.get(SECRETS, ()), *secrets]}
    return kept


def with_secrets(uri: str, options: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]]:
    """The address as it was written, and the options that its filesystem is to be given."""
    kept = dict(options or {})
    secrets = kept.pop(SECRETS, ())
    scheme, separator, rest = uri.partition("://")
    host = rest.partition("/")[0]
    for address, user, _ in secrets:
        if user and address.lstrip("@").startswith((f"{scheme}://{host}/", uri)):
            rest = user + rest
            break
    queries = [(address.lstrip("@"), query) for address, _, query in secrets if query]
    exact = [query for address, query in queries if address == uri]
    found = exact or [query for address, query in queries if _covers(address, uri)]
    return scheme + separator + rest + (f"?{found[0]}" if found else ""), kept


def _covers(address: str, uri: str) -> bool:
    """Whether an address is a pattern of, or a folder above, another."""
    constant = re.split(r"[*?\[{]", address, maxsplit=1)[0]
    folder = address.rstrip("/") if constant == address else constant.rpartition("/")[0]
    return uri.startswith(folder + "/")


def _split(uri: str) -> tuple[str, str, str]:
    """(public address, user and password with their `@`, signed query); empty where it has none."""
    user = ""
    if (match := _USER.match(uri)) and not (
        match["scheme"].lstrip("@").lower() in _CONTAINER_SCHEMES and ":" not in match["user"]
    ):
        user = match["user"]
        uri = match["scheme"] + uri[match.end() :]
    address, _, query = uri.partition("?")
    if "://" not in uri or not _SIGNED.search(query):
        return uri, user, ""
    return address, user, query
