"""Charts as SVG."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from sapiens_batch.sheets.page import environment

charts: Any = environment().get_template("charts.html").module


def shapes(chart: str, tag: str) -> list[dict[str, str]]:
    return [element.attrib for element in ElementTree.fromstring(str(chart)).iter(tag)]


def test_bars_are_as_high_as_their_counts() -> None:
    bars = shapes(charts.histogram([1, 4, 0, 2], [0, 1, 2, 3, 4]), "rect")
    assert [float(bar["height"]) for bar in bars] == [20, 80, 0, 40]


def test_a_small_count_stays_visible() -> None:
    bars = shapes(charts.columns([1, 100000], ["a", "b"]), "rect")
    assert float(bars[0]["height"]) > 0.5


def test_names_are_escaped() -> None:
    assert "<b>" not in charts.columns([1], ["<b>"])


def test_far_shards_are_marked_and_missing_ones_left_out() -> None:
    points = shapes(charts.deviations([0.5, None, -6.0], limit=4), "circle")
    assert [point["class"] for point in points] == ["point far", "point"]


def test_very_many_shards_keep_every_far_one_and_few_others() -> None:
    scores = [0.0] * 100_000
    scores[77_777] = 9.0
    points = shapes(charts.deviations(scores, limit=4), "circle")
    assert sum(point["class"] == "point far" for point in points) == 1
    assert len(points) <= 401


@pytest.mark.parametrize("counts", [[], [0, 0]])
def test_nothing_to_count_gives_an_empty_chart(counts: list[int]) -> None:
    edges = [float(edge) for edge in range(len(counts) + 1)]
    assert "<svg" in charts.histogram(counts, edges)
