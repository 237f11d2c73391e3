"""Small charts as inline SVG, for reports; colours come from the page's style.

Numbers in, markup out. Axis labels are part of the chart, titles and units of the page.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

_WIDTH, _HEIGHT = 320.0, 96.0
_BASE = 80.0
# More would overlap, and make pages of large jobs slow.
_MAX_POINTS = 400


def histogram(counts: Sequence[float], edges: Sequence[float], *, digits: int = 1) -> Markup:
    """Bars of equal width.

    Args:
        counts: Height of each bar.
        edges: len(counts) + 1 borders of the bars.
        digits: Digits after the point in labels.
    """
    highest = max([*counts, 1e-12])
    step = _WIDTH / max(1, len(counts))
    bars = [
        _bar(i * step + 0.5, step - 1, _BASE * count / highest,
             f"{edges[i]:.{digits}f} to {edges[i + 1]:.{digits}f}: {count:g}")
        for i, count in enumerate(counts)
    ]  # fmt: skip
    middle = (edges[0] + edges[-1]) / 2
    labels = [
        _label(0, "start", f"{edges[0]:.{digits}f}"),
        _label(_WIDTH / 2, "middle", f"{middle:.{digits}f}"),
        _label(_WIDTH, "end", f"{edges[-1]:.{digits}f}"),
    ]
    return _svg([*bars, *labels])


def columns(counts: Sequence[float], names: Sequence[str]) -> Markup:
    """Bars with a name each."""
    highest = max([*counts, 1e-12])
    step = _WIDTH / max(1, len(counts))
    parts = []
    for i, (count, name) in enumerate(zip(counts, names, strict=True)):
        parts.append(_bar(i * step + 2, step - 4, _BASE * count / highest, f"{name}: {count:g}"))
        parts.append(_label((i + 0.5) * step, "middle", name))
    return _svg(parts)


def _svg(parts: Sequence[Markup]) -> Markup:
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img">{}</svg>').format(
        _WIDTH, _HEIGHT, Markup("").join(parts)
    )


def _bar(x: float, width: float, height: float, title: str) -> Markup:
    shown = max(height, 0.75) if height > 0 else 0
    return Markup(
        '<rect class="bar" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="1">'
        "<title>{}</title></rect>"
    ).format(x, _BASE - shown, max(width, 0.5), shown, escape(title))


def _label(x: float, anchor: str, text: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{}" text-anchor="{}">{}</text>').format(
        x, _HEIGHT - 3, anchor, text
    )
