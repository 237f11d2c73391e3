"""Files and metadata beside ONNX graphs, as exporters and people write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from sapiens_batch.errors import SpecError
from sapiens_batch.persons.onnx_settings import (
    Settings,
    channels,
    class_names,
    is_on,
    metadata_size,
    parse_json,
    positive_number,
    processor_edges,
    processor_size,
)

MODEL, FILE = "persons.detector.model: a.onnx", "preprocessor_config.json"
NOTHING = Settings(MODEL, "config.json", {})


def processor(**values: Any) -> Settings:
    return parse_json(json.dumps(values).encode(), MODEL, FILE)


def metadata(**values: str) -> Settings:
    return Settings(MODEL, "the metadata", values)


def refused(call: Callable[[], object], *parts: str) -> None:
    with pytest.raises(SpecError) as refusal:
        call()
    for part in (MODEL, *parts):
        assert part in str(refusal.value)


class TestSizes:
    @pytest.mark.parametrize(
        ("values", "edges"),
        [
            ({}, (800, 1333)),
            ({"size": None}, (800, 1333)),
            ({"size": 800, "max_size": 1333}, (800, 1333)),  # the published DETR
            ({"size": 512, "max_size": 700}, (512, 700)),
            ({"size": 2000}, (2000, 2000)),
            ({"size": {"shortest_edge": 480}}, (480, 1333)),
            ({"size": {"shortest_edge": 480, "longest_edge": 640}}, (480, 640)),
            ({"size": {"shortest_edge": 480.0, "longest_edge": None}}, (480, 1333)),
        ],
    )
    def test_edges(self, values: dict[str, Any], edges: tuple[int, int]) -> None:
        assert processor_size(processor(**values)) is None
        assert processor_edges(processor(**values)) == edges

    @pytest.mark.parametrize("size", [{"height": 480, "width": 640}, [480, 640]])
    def test_fixed(self, size: object) -> None:
        assert processor_size(processor(size=size)) == (480, 640)

    @pytest.mark.parametrize(
        "size",
        [
            "800", True, 0, -1, 1.5, 1e400, 10**400, [1, 2, 3], {"height": 9}, {"width": 9},
            {"longest_edge": 9}, {"max_height": 9, "max_width": 9}, {"height": "9", "width": 9},
            {"shortest_edge": [9]}, {"height": 10**6, "width": 9},
        ],
    )  # fmt: skip
    def test_what_is_no_size_is_refused(self, size: object) -> None:
        settings = Settings(MODEL, FILE, {"size": size})
        refused(lambda: processor_size(settings), FILE, f"the size {size!r}"[:80])

    def test_a_longest_side_that_is_none_is_refused(self) -> None:
        settings = processor(size=800, max_size="large")
        refused(lambda: processor_edges(settings), FILE, "the max_size 'large'")

    @pytest.mark.parametrize(
        ("text", "size"),
        [
            ("640", (640, 640)), ("640.0", (640, 640)), ("[640]", (640, 640)),
            ("[480, 640]", (480, 640)), ("(480, 640)", (480, 640)), ("", None),
        ],
    )  # fmt: skip
    def test_of_the_metadata(self, text: str, size: tuple[int, int] | None) -> None:
        assert metadata_size(metadata(imgsz=text)) == size
        assert metadata_size(metadata()) is None

    @pytest.mark.parametrize(
        "text", ["[True, True]", "big", "[1, 2, 3]", "[]", "-640", "{[1]: 2}", "[" * 9999]
    )
    def test_what_is_no_size_in_the_metadata_is_refused(self, text: str) -> None:
        refused(lambda: metadata_size(metadata(imgsz=text)), "the metadata has the imgsz")


class TestPixelRules:
    def test_null_is_the_default(self) -> None:
        settings = processor(image_mean=None, rescale_factor=None)
        assert channels(settings, "image_mean", (1, 2, 3)) == (1, 2, 3)
        assert positive_number(settings, "rescale_factor", 0.25) == 0.25

    def test_one_number_is_for_every_channel(self) -> None:
        assert channels(processor(image_std=0.5), "image_std", (1, 1, 1)) == (0.5, 0.5, 0.5)

    @pytest.mark.parametrize("value", [[0.5], [0.5] * 4, "0.5", [0.5, None, 0.5], {}, [0.5, 0, 1]])
    def test_what_is_no_divisor_is_refused(self, value: object) -> None:
        settings = processor(image_std=value)
        refused(
            lambda: channels(settings, "image_std", (1, 1, 1), positive=True),
            f"{FILE} has the image_std {value!r}",
        )

    @pytest.mark.parametrize("value", [0, -1, "1/255", True, [1], 10**400])
    def test_what_is_no_factor_is_refused(self, value: object) -> None:
        settings = processor(rescale_factor=value)
        refused(lambda: positive_number(settings, "rescale_factor", 1), repr(value)[:80])

    def test_a_step_is_done_unless_the_file_says_otherwise(self) -> None:
        assert is_on(processor(), "normalize")
        assert not is_on(processor(do_normalize=False), "normalize")
        assert not is_on(processor(do_normalize=None), "normalize")  # as transformers has it
        refused(lambda: is_on(processor(do_normalize="no"), "normalize"), "the do_normalize 'no'")


class TestNames:
    @pytest.mark.parametrize(
        ("text", "names"),
        [
            ("{0: 'person', 1: 'cat'}", {0: "person", 1: "cat"}),
            ('{"0": "person", "7": "cat"}', {0: "person", 7: "cat"}),
            ("['person', 'cat']", {0: "person", 1: "cat"}),
            ("('person',)", {0: "person"}),
            ("{'person': 0, 'cat': 3}", {0: "person", 3: "cat"}),
            ("{}", {}),
            ("", {}),
        ],
    )
    def test_of_the_metadata(self, text: str, names: dict[int, str]) -> None:
        assert class_names(metadata(names=text), NOTHING) == names

    @pytest.mark.parametrize(
        "text",
        [
            "person", "{[1]: 2}", "{'person': 'cat'}", "{'a': 0, 'b': 0}", "{-1: 'person'}", "7",
            "{0: ['person']}", "[" * 300 + "]" * 300, "(" * 99999, f"{{'{'9' * 5000}': 'person'}}",
        ],
    )  # fmt: skip
    def test_what_names_nothing_is_refused(self, text: str) -> None:
        refused(lambda: class_names(metadata(names=text), NOTHING), "the metadata has the names")

    @pytest.mark.parametrize(
        ("value", "names"),
        [
            (None, {}),
            (["a", "person"], {0: "a", 1: "person"}),
            ({"1": "person"}, {1: "person"}),
            ({"person": 1}, {1: "person"}),
        ],
    )
    def test_of_the_configuration(self, value: object, names: dict[int, str]) -> None:
        assert class_names(metadata(), processor(id2label=value)) == names

    @pytest.mark.parametrize("value", [3, "person", {"person": "cat"}, {"0": None}])
    def test_what_names_nothing_in_the_configuration_is_refused(self, value: object) -> None:
        config = parse_json(json.dumps({"id2label": value}).encode(), MODEL, "config.json")
        refused(lambda: class_names(metadata(), config), f"config.json has the id2label {value!r}")


@pytest.mark.parametrize("data", [b"[1]", b"null", b"{", b"\xff", b"[" * 99999, b'{"a": ' * 99999])
def test_a_file_that_is_no_object_is_refused(data: bytes) -> None:
    refused(lambda: parse_json(data, MODEL, FILE), FILE)
