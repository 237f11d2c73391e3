"""The contact sheet as a file."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import cv2
import pytest

from sapiens_batch.preview import PreviewOptions, Selection, write_preview
from sapiens_batch.protocol.manifest import Manifest
from sapiens_batch.sheets.panels import PanelOptions
from sapiens_batch.storage import open_store
from tests.labeled_job import make_labeled_job


def test_every_chosen_sample_has_a_card_with_its_panels(manifest: Manifest, tmp_path: Path) -> None:
    shown = write_preview(
        manifest, tmp_path / "p.html", PreviewOptions(Selection(count=40), PanelOptions(side=160))
    )
    assert len(shown.cards) == 40
    labeled = [card for card in shown.cards if card.status == "ok"]
    for card in labeled:
        kinds = [picture.kind for picture in card.pictures]
        assert kinds[:2] == ["photo", "pose"]
        assert kinds[-3:] == ["seg", "normal", "pointmap"]
    truncated = next(card for card in shown.cards if card.reason == "decode.truncated")
    assert truncated.pictures == ()
    not_finite = next(card for card in shown.cards if card.reason == "label.non_finite")
    assert [picture.kind for picture in not_finite.pictures] == ["photo"]


def test_a_page_asks_for_nothing_outside_itself(manifest: Manifest, tmp_path: Path) -> None:
    page = tmp_path / "p.html"
    write_preview(manifest, page, PreviewOptions(Selection(count=4)))
    addresses = re.findall(r"""(?:src|href|action)\s*=\s*["']([^"']*)""", page.read_text())
    assert addresses
    assert all(address.startswith("data:") for address in addresses)
    assert "url(" not in page.read_text()


def test_labels_of_random_weights_are_called_meaningless(
    manifest: Manifest, other_manifest: Manifest, tmp_path: Path
) -> None:
    write_preview(manifest, tmp_path / "demo.html", PreviewOptions(Selection(count=1)))
    write_preview(other_manifest, tmp_path / "real.html", PreviewOptions(Selection(count=1)))
    assert "mean nothing" in (tmp_path / "demo.html").read_text()
    assert "mean nothing" not in (tmp_path / "real.html").read_text()


def test_every_panel_is_a_png_file_where_a_folder_is_given(
    manifest: Manifest, tmp_path: Path
) -> None:
    options = PreviewOptions(
        Selection(count=3, wanted="status = 'ok'"), png_folder=tmp_path / "png"
    )
    shown = write_preview(manifest, tmp_path / "p.html", options)
    files = sorted((tmp_path / "png").iterdir())
    assert len(files) == sum(len(card.pictures) for card in shown.cards)
    picture = cv2.imread(str(files[0]))
    assert picture is not None
    assert max(picture.shape[:2]) == 480


def test_labels_are_shown_without_photos_that_are_gone(tmp_path: Path) -> None:
    job = make_labeled_job(tmp_path / "job", num_samples=4, row_size=(32, 24))
    shutil.rmtree(tmp_path / "job-corpus")
    shown = write_preview(
        Manifest.open(open_store(str(job))), tmp_path / "p.html", PreviewOptions()
    )
    assert [problem.reason for problem in shown.problems] == ["source.unreadable"]
    assert all("photo" not in [one.kind for one in card.pictures] for card in shown.cards)
    assert any("pose" in [one.kind for one in card.pictures] for card in shown.cards)
    assert "could not be read again" in (tmp_path / "p.html").read_text()


def test_names_from_the_corpus_are_escaped(tmp_path: Path) -> None:
    from sapiens_batch.sheets.cards import Card
    from sapiens_batch.sheets.page import JobFacts, write_page

    card = Card("<script>alert(1)</script>", "s", 0, "ok", "", "", "", 0, (), (), ())
    facts = JobFacts("j", 1, {"ok": 1, "empty": 0, "quarantined": 0, "persons": 0}, (), False, ())
    write_page(
        tmp_path / "p.html", "preview.html", title="t", facts=facts,
        cards=(card,), selection=Selection(), problems=[], kinds=[],
    )  # fmt: skip
    text = (tmp_path / "p.html").read_text()
    assert "&lt;script&gt;alert(1)" in text
    assert "<script>alert(1)" not in text


def test_a_page_replaces_an_older_one(manifest: Manifest, tmp_path: Path) -> None:
    page = tmp_path / "p.html"
    page.write_text("old")
    write_preview(manifest, page, PreviewOptions(Selection(count=1)))
    assert page.read_text().startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir()] == ["p.html"]


@pytest.mark.parametrize("command", ["preview", "report"])
def test_the_command_line_says_where_the_page_is(command: str, job: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from sapiens_batch.cli import app

    page = tmp_path / "page.html"
    result = CliRunner().invoke(app, [command, str(job), "-o", str(page)])
    assert result.exit_code == 0, result.output
    assert str(page).replace("\n", "") in result.output.replace("\n", "")
    assert page.exists()


def test_long_keys_are_shown_whole_in_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from sapiens_batch.commands.preview import show_preview
    from sapiens_batch.preview import Preview
    from sapiens_batch.sheets.cards import Card

    monkeypatch.setenv("COLUMNS", "80")
    key = "coco2014_" + "".join(f"{number:04d}" for number in range(20))
    card = Card(key, "s", 0, "quarantined", "decode.truncated", "", "", 0, (), (), ())
    show_preview(Preview(tmp_path / "p.html", (card,), ()))
    lines = capsys.readouterr().out.splitlines()
    assert key in "".join(word for line in lines for word in line.split()[:1])
