"""The pictures of one sample."""

from __future__ import annotations

import numpy as np
import pytest

from sapiens_batch.labelset import LabelSet, SampleLabels, open_labels
from sapiens_batch.sheets.cards import classes_of
from sapiens_batch.sheets.panels import PanelOptions, sample_panels
from sapiens_batch.sheets.photos import decode_photo
from tests.labeled_job import content_of, encode, make_labeled_job

OPTIONS = PanelOptions(side=200)


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> LabelSet:
    path = make_labeled_job(
        tmp_path_factory.mktemp("panels") / "job", num_samples=8, row_size=(128, 96)
    )
    return open_labels(str(path))


@pytest.fixture(scope="module")
def astronaut(labels: LabelSet) -> SampleLabels:
    return labels.sample("sample-000000")


def test_panels_have_the_shape_of_the_photo(astronaut: SampleLabels) -> None:
    photo = decode_photo(encode(content_of(0, 0)))
    assert photo is not None
    shapes = {panel.kind: panel.picture.shape for panel in sample_panels(astronaut, photo, OPTIONS)}
    scale = 200 / max(photo.shape[:2])
    whole = (round(photo.shape[0] * scale), round(photo.shape[1] * scale), 3)
    for kind in ("photo", "pose", "seg", "normal", "pointmap"):
        assert shapes[kind] == whole
    assert max(shapes["face"]) == 200


def test_labels_lie_where_the_photo_shows_them(astronaut: SampleLabels) -> None:
    photo = decode_photo(encode(content_of(0, 0)))
    panels = {panel.kind: panel for panel in sample_panels(astronaut, photo, OPTIONS)}
    x, y, _, _ = content_of(0, 0).people[0].face
    scale = 200 / max(content_of(0, 0).size)
    place = (round(y * scale), round(x * scale))
    blue = panels["seg"].picture[place].astype(int)
    assert blue[2] > blue[0]
    bright = panels["pointmap"].picture[place].astype(int).sum()
    assert bright > panels["pointmap"].picture[3, 3].astype(int).sum()


def test_only_wanted_kinds_are_drawn(astronaut: SampleLabels) -> None:
    photo = np.zeros((*content_of(0, 0).size, 3), np.uint8)
    only = PanelOptions(side=100, kinds=frozenset({"face", "normal"}))
    assert [panel.kind for panel in sample_panels(astronaut, photo, only)] == ["face", "normal"]


def test_without_a_photo_labels_are_drawn_on_plain_ground(astronaut: SampleLabels) -> None:
    kinds = [panel.kind for panel in sample_panels(astronaut, None, OPTIONS)]
    assert kinds == ["pose", "seg", "normal", "pointmap"]


def test_a_quarantined_sample_has_no_labels_to_draw(labels: LabelSet) -> None:
    truncated = labels.sample("sample-000007")
    assert list(sample_panels(truncated, None, OPTIONS)) == []


def test_a_card_names_the_classes_by_area(astronaut: SampleLabels) -> None:
    classes = classes_of(astronaut)
    assert [one.name for one in classes[:3]] == ["Upper Clothing", "Face Neck", "Hair"]
    assert classes[0].colour == "#008048"
    shares = [one.share for one in classes]
    assert shares == sorted(shares, reverse=True)
