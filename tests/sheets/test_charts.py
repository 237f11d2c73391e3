"""Charts as SVG."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from sapiens_batch.sheets import charts


def shapes(chart: Markup, tag: str) -> list[dict[str, str]]:
    return [element.attrib for element in ElementTree.fromstring(str(chart)).iter(tag)]


def test_bars_are_as_high_as_their_counts() -> None:
    bars = shapes(charts.histogram([1, 4, 0, 2], [0, 1, 2, 3, 4]), "rect")
    assert [float(bar["height"]) for bar in bars] == [20, 80, 0, 40]


def test_a_small_count_stays_visible() -> None:
    bars = shapes(charts.columns([1, 100000], ["a", "b"]), "rect")
    assert float(bars[0]["height"]) > 0.5


def test_names_are_escaped() -> None:
    assert "<b>" not in charts.columns([1], ["<b>"])


@pytest.mark.parametrize("counts", [[], [0, 0]])
def test_nothing_to_count_gives_an_empty_chart(counts: list[int]) -> None:
    edges = [float(edge) for edge in range(len(counts) + 1)]
    assert "<svg" in charts.histogram(counts, edges)
