"""The JSON-LD context of Croissant 1.1: which short names stand for which terms.

It is the one that the specification recommends, as data.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_CROISSANT = (
    "annotation", "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract",
    "field", "fileObject", "fileProperty", "fileSet", "format", "includes", "isArray",
    "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "readLines", "recordSet",
    "references", "regex", "repeated", "replace", "samplingRate", "sdVersion", "separator",
    "source", "subField", "transform", "unArchive", "value",
)  # fmt: skip

CONTEXT: Mapping[str, Any] = MappingProxyType(
    {
        "@language": "en",
        "@vocab": "https://schema.org/",
        "sc": "https://schema.org/",
        "cr": "http://mlcommons.org/croissant/",
        "rai": "http://mlcommons.org/croissant/RAI/",
        "dct": "http://purl.org/dc/terms/",
        "prov": "http://www.w3.org/ns/prov#",
        "conformsTo": "dct:conformsTo",
        "data": {"@id": "cr:data", "@type": "@json"},
        "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
        "examples": {"@id": "cr:examples", "@type": "@json"},
        **{name: f"cr:{name}" for name in _CROISSANT},
    }
)
