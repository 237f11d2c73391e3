"""`preview`, `compare` and `report`: look at labels, at what differs, and at a job as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from sapiens_batch.commands.address import JobAddress, JobArgument, Overrides
from sapiens_batch.commands.console import AsJson, console, print_json, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sapiens_batch.preview import Preview
    from sapiens_batch.preview.compare import Comparison
    from sapiens_batch.records import Problem
    from sapiens_batch.report import Report
    from sapiens_batch.sheets.cards import Card

Page = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The HTML page.")]
Where = Annotated[
    str | None,
    typer.Option(metavar="FILTER", help='Which samples, for example "num_persons >= 2".'),
]
MinScore = Annotated[float, typer.Option(help="Keypoints with this score or less are left out.")]


def preview(
    job: JobArgument,
    output: Page = Path("preview.html"),
    samples: Annotated[int, typer.Option("--samples", "-n", help="How many samples.")] = 24,
    order: Annotated[
        Literal["random", "worst", "stored"], typer.Option(help="Which samples come first.")
    ] = "random",
    where: Where = None,
    reason: Annotated[
        list[str] | None,
        typer.Option(help="Only samples quarantined for this reason, or for its group: `decode`."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the random order.")] = 0,
    png: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write every picture as PNG here too.")
    ] = None,
    side: Annotated[int, typer.Option(help="Longest side of a picture, px.")] = 480,
    min_score: MinScore = 0.3,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Show samples with their labels on one self-contained HTML page."""
    from sapiens_batch.preview import Order, PreviewOptions, Selection, write_preview
    from sapiens_batch.sheets.panels import PanelOptions

    address = JobAddress.parse(job, overrides)
    options = PreviewOptions(
        selection=Selection(samples, Order(order), where, tuple(reason or ()), seed),
        panels=PanelOptions(side=side, min_score=min_score),
        png_folder=png,
        source_options=address.source_options,
    )
    made = write_preview(address.open(), output, options)
    if as_json:
        print_json({"page": str(made.page), "samples": [_sample(one) for one in made.cards]})
    else:
        show_preview(made)


def compare(
    first: JobArgument,
    second: JobArgument,
    output: Page = Path("compare.html"),
    by: Annotated[
        Literal["key", "place"],
        typer.Option(help="How samples are paired: by key, or by place in the same shards."),
    ] = "key",
    where: Where = None,
    worst: Annotated[int, typer.Option(help="Samples on the page for each measure.")] = 6,
    min_score: MinScore = 0.3,
    as_json: AsJson = False,
) -> None:
    """Show where two jobs over one corpus differ: numbers, and the samples that differ most."""
    from sapiens_batch.labelset import LabelSet
    from sapiens_batch.preview.compare import CompareOptions, compare_labels
    from sapiens_batch.preview.differences import write_differences
    from sapiens_batch.sheets.panels import PanelOptions

    address = JobAddress.parse(first)
    manifests = address.open(), JobAddress.parse(second).open()
    options = CompareOptions(by, where, min_score, worst)
    found = compare_labels(LabelSet(manifests[0]), LabelSet(manifests[1]), options)
    problems = write_differences(
        *manifests,
        found,
        output,
        panels=PanelOptions(min_score=min_score),
        source_options=address.source_options,
    )
    if as_json:
        print_json({"page": str(output), **found.to_json()})
    else:
        _show_comparison(found, output, problems)


def report(
    job: JobArgument,
    output: Page = Path("report.html"),
    pictures: Annotated[
        int, typer.Option(help="Pictures to look at for brightness; 0 for none.")
    ] = 200,
    seed: Annotated[int, typer.Option(help="Decides which pictures.")] = 0,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Write the quality card of a job as HTML, Markdown and JSON."""
    from sapiens_batch.report import make_report, write_report

    address = JobAddress.parse(job, overrides)
    made = make_report(
        address.open(), pictures=pictures, seed=seed, source_options=address.source_options
    )
    files = write_report(made, output)
    if as_json:
        print_json(made.to_json())
    else:
        _show_report(made, files)


def show_preview(made: Preview) -> None:
    """Print the samples of a page, with their keys whole."""
    out = console()
    table = Table(box=None)
    table.add_column("key", overflow="fold")
    for name in ("status", "persons", "body", "face", "hands", ""):
        table.add_column(name)
    for card in made.cards:
        notes = shown(card.reason or card.note)
        table.add_row(shown(card.key), card.status, f"{card.num_persons}", *_scores(card), notes)
    out.print(table)
    _show_problems(made.problems)
    out.print(f"{len(made.cards)} samples on {shown(made.page)}", soft_wrap=True)


def _scores(card: Card) -> tuple[str, str, str]:
    """Mean scores of body, face and hands over the persons of a card."""
    groups = (("body", "all"), ("face",), ("left_hand", "right_hand"))
    texts = []
    for names in groups:
        values = [
            person.scores[name]
            for person in card.persons
            for name in names
            if name in person.scores
        ]
        texts.append(f"{sum(values) / len(values):.2f}" if values else "")
    return texts[0], texts[1], texts[2]


def _sample(card: Card) -> dict[str, object]:
    return {
        "key": card.key,
        "shard": card.shard,
        "index": card.index,
        "status": card.status,
        "reason": card.reason or None,
        "persons": [dict(person.scores) for person in card.persons],
    }


def _show_comparison(found: Comparison, page: Path, problems: Sequence[Problem]) -> None:
    from sapiens_batch.preview.measure import MEASURES

    out = console()
    out.print(
        f"{found.num_samples} samples in both, "
        f"{found.num_only_first} only in {shown(found.first)}, "
        f"{found.num_only_second} only in {shown(found.second)}",
        soft_wrap=True,
    )
    table = Table("measure", "samples", "mean", "median", "95 %", "worst", box=None)
    for name, spread in found.spreads.items():
        numbers = (spread.mean, spread.median, spread.p95, spread.extreme)
        title = f"{MEASURES[name].title} {MEASURES[name].unit}".strip()
        table.add_row(title, f"{spread.num_samples}", *(f"{number:.4g}" for number in numbers))
    out.print(table)
    _show_problems(problems)
    out.print(f"The samples that differ most are on {shown(page)}", soft_wrap=True)


def _show_report(made: Report, files: Sequence[Path]) -> None:
    out = console()
    counts = made.counts
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_row("shards", f"{made.committed_shards} of {made.planned_shards} committed")
    for name in ("ok", "empty", "quarantined", "persons"):
        table.add_row(name, f"{counts[name]}")
    for group, one in made.scores.items():
        table.add_row(f"mean score, {group.replace('_', ' ')}", f"{one.mean:.2f}")
    deviating = {shard.shard for one in made.drift for shard in one.outliers}
    table.add_row("deviating shards", f"{len(deviating)}")
    out.print(table)
    if made.demo:
        out.print("[yellow]demo weights: these labels are random and mean nothing[/]")
    out.print(f"The report is in {shown(', '.join(map(str, files)))}", soft_wrap=True)


def _show_problems(problems: Sequence[Problem]) -> None:
    out = console()
    for problem in problems:
        out.print(f"[yellow]no photos: {shown(problem.message)}[/]", soft_wrap=True)
