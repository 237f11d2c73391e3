"""From encoded samples to rows and views: nothing vanishes, and neighbours change nothing."""

from __future__ import annotations

import io
import pickle
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from sapiens_batch.images import guard
from sapiens_batch.images.collector import EAGER_PERSONS
from sapiens_batch.images.crops import CropCanvases
from sapiens_batch.persons import make_person_finder
from sapiens_batch.records import (
    Array,
    Chunk,
    Level,
    Problem,
    Sample,
    Status,
    ViewKind,
    ViewSpec,
)
from sapiens_batch.samples.build import PHOTOS
from sapiens_batch.spec.job import DecodeSpec, PersonsSpec
from sapiens_batch.stages.flow import PreparedChunk, pack, unpack
from sapiens_batch.stages.prepare import ChunkPreparer

STRETCH = ViewSpec(ViewKind.STRETCH, 64, 48)
CROP = ViewSpec(ViewKind.CROP, 64, 48)
REGION = ViewSpec(ViewKind.LETTERBOX, 64, 48, region=Level.PERSON)
SPECS = (STRETCH, CROP, REGION)

PORTRAITS = (PHOTOS / "portraits.jpg").read_bytes()
TWO_BOXES = np.array([[0, 14, 320, 411], [322, 12, 318, 413]], np.float32)


def chunk(*samples: Sample) -> Chunk:
    numbered = tuple(replace(sample, index=4 + i) for i, sample in enumerate(samples))
    return Chunk("ab" * 16, 2, 4, numbered, last=True)


def sample(encoded: bytes | None, boxes: Array | None = None, **fields: object) -> Sample:
    return Sample("key", 0, encoded, boxes, **fields)


def prepare(
    *samples: Sample,
    persons: dict[str, object] | None = None,
    decode: DecodeSpec | None = None,
    specs: tuple[ViewSpec, ...] = SPECS,
) -> PreparedChunk:
    finder = make_person_finder(PersonsSpec.model_validate(persons or {}))
    preparer = pickle.loads(pickle.dumps(ChunkPreparer(finder, specs, decode)))
    return preparer.prepare(chunk(*samples))


def test_every_sample_becomes_a_row_whatever_happens_to_it() -> None:
    missing = Problem("source.missing_member", "no image")
    made = prepare(
        sample(PORTRAITS, TWO_BOXES),
        sample(b"<html>", TWO_BOXES),
        sample(None, problem=missing),
        sample(PORTRAITS),
        sample(PORTRAITS, np.zeros((2, 3), np.float32)),
        sample(PORTRAITS, TWO_BOXES[:1]),
    )
    assert [row.status for row in made.samples] == [
        Status.OK,
        Status.QUARANTINED,
        Status.QUARANTINED,
        Status.EMPTY,
        Status.QUARANTINED,
        Status.OK,
    ]
    assert [row.problem and row.problem.reason for row in made.samples] == [
        None,
        "decode.unknown_format",
        "source.missing_member",
        None,
        "person.malformed_boxes",
        None,
    ]
    assert [row.sample.index for row in made.samples] == [4, 5, 6, 7, 8, 9]
    assert [row.num_persons for row in made.samples] == [2, 0, 0, 0, 0, 1]
    assert [(one.sample, one.person) for one in made.persons] == [(0, 0), (0, 1), (5, 0)]
    assert made.views[STRETCH].rows == (0, 3, 5)
    assert made.views[CROP].rows == made.views[REGION].rows == (0, 1, 2)
    assert made.samples[0].sample.encoded is None


def test_rows_say_how_an_image_was_decoded() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime")]
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    photo, animation, broken = prepare(
        sample(PORTRAITS), sample(buffer.getvalue()), sample(b"")
    ).samples
    assert (photo.decoder, photo.animated, photo.colour_profile) == ("opencv", False, "none")
    assert (animation.decoder, animation.animated) == ("pillow", True)
    assert (broken.decoder, broken.animated, broken.size) == (None, None, None)


def test_a_refused_box_keeps_a_row_and_has_no_views() -> None:
    boxes = np.array([[0, 0, 0, 5], TWO_BOXES[0], [np.nan, 0, 5, 5]], np.float32)
    made = prepare(sample(PORTRAITS, boxes, box_scores=np.array([0.1, 0.2, 0.3], np.float32)))
    assert [(one.person, one.status, one.reason) for one in made.persons] == [
        (0, "refused", "person.no_area"),
        (1, "ok", None),
        (2, "refused", "person.not_finite"),
    ]
    assert [one.score for one in made.persons] == pytest.approx([0.1, 0.2, 0.3])
    assert made.views[CROP].rows == (1,)
    assert made.samples[0].num_persons == 1


def test_an_image_with_refused_boxes_alone_is_empty() -> None:
    made = prepare(sample(PORTRAITS, np.array([[0, 0, 0, 5]], np.float32)))
    assert made.samples[0].status is Status.EMPTY
    assert len(made.persons) == 1


def test_a_whole_image_that_stands_in_for_persons_is_flagged() -> None:
    made = prepare(sample(PORTRAITS), persons={"on_empty": "whole_image"})
    (person,) = made.persons
    assert made.samples[0].status is Status.OK
    assert (person.status, person.reason) == ("ok", "person.invented")
    np.testing.assert_array_equal(person.box, [0, 0, 640, 425])


def test_too_many_persons_are_flagged() -> None:
    samples = sample(PORTRAITS, TWO_BOXES), sample(PORTRAITS, TWO_BOXES[:1]), sample(b"")
    made = prepare(*samples, persons={"max_persons": 1})
    assert [row.persons_truncated for row in made.samples] == [True, False, None]


def crowd(count: int) -> Array:
    left = np.linspace(0, 500, count)
    return np.stack([left, left / 2, np.full(count, 90), np.full(count, 120)], 1).astype(np.float32)


def test_a_crowd_travels_as_pixels_and_boxes_and_gives_the_same_crops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "_GROUP_PIXELS_BYTES", 1)  # each image takes the place of another
    specs = (ViewSpec(ViewKind.CROP, 512, 384), ViewSpec(ViewKind.STRETCH, 512, 384))
    specs = (*specs, replace(specs[1], region=Level.PERSON))
    samples = [
        sample(PORTRAITS, TWO_BOXES),
        sample(PORTRAITS, crowd(40)),
        sample(PORTRAITS, TWO_BOXES[:1]),
    ]
    packed = pack(prepare(*samples, specs=specs))
    assert packed.nbytes < 640 * 425 * 3 + 3 * 4 * 512 * 384 * 3 + 100_000
    made = unpack(packed)
    apart = [
        prepare(replace(samples[1], boxes=crowd(40)[i : i + 1]), specs=specs) for i in range(40)
    ]
    for spec in (specs[0], specs[2]):
        views = made.views[spec]
        assert isinstance(views.canvases, CropCanvases)
        assert views.canvases.shape == (43, 512, 384, 3)
        assert views.rows == tuple(range(43))
        for start in range(0, 43, 8):
            batch = views.select(start, start + 8)
            assert isinstance(batch.canvases, np.ndarray)
            for canvas, to_source, row in zip(
                batch.canvases, batch.to_source, batch.rows, strict=True
            ):
                if 2 <= row < 42:
                    alone = apart[row - 2].views[spec]
                    np.testing.assert_array_equal(canvas, alone.canvases[0])
                    assert to_source == alone.to_source[0]
    assert isinstance(made.views[specs[1]].canvases, np.ndarray)


def test_a_handful_of_persons_is_cut_at_once() -> None:
    large = ViewSpec(ViewKind.CROP, 512, 384)
    made = prepare(sample(PORTRAITS, crowd(EAGER_PERSONS)), specs=(large,))
    assert isinstance(made.views[large].canvases, np.ndarray)


@pytest.mark.parametrize("origin", ["source", "detector"])
def test_neighbours_change_nothing(origin: str) -> None:
    if origin == "detector":
        pytest.importorskip("onnxruntime", reason="the extra `detect` is not installed")
    persons = {
        "from": origin,
        **({"detector": {"batch_images": 3}} if origin == "detector" else {}),
    }
    photos = [(PHOTOS / f"{name}.jpg").read_bytes() for name in ("astronaut", "cat", "portraits")]
    bad = [sample(b""), sample(photos[2][:5000])]
    mixed = [bad[0], *(sample(photo, TWO_BOXES) for photo in photos), bad[1]]
    together = prepare(*mixed, persons=persons)
    for position, one in enumerate(mixed):
        alone = prepare(one, persons=persons)
        row = together.samples[position]
        assert replace(row, sample=alone.samples[0].sample) == alone.samples[0]
        mine = [i for i, person in enumerate(together.persons) if person.sample == position]
        assert len(mine) == len(alone.persons)
        for spec, owners in ((STRETCH, [position]), (CROP, mine)):
            views = together.views[spec]
            canvases = [
                canvas
                for canvas, row in zip(views.canvases, views.rows, strict=True)
                if row in owners
            ]
            assert len(canvases) == len(alone.views[spec])
            for canvas, expected in zip(canvases, alone.views[spec].canvases, strict=True):
                np.testing.assert_array_equal(canvas, expected)


def test_settings_of_the_job_reach_the_decoder() -> None:
    buffer = io.BytesIO()
    Image.new("RGBA", (300, 200), (0, 0, 0, 0)).save(buffer, "PNG")
    made = prepare(
        sample(buffer.getvalue()),
        sample(PORTRAITS),
        decode=DecodeSpec(background=(9, 8, 7), max_pixels=300 * 200),
    )
    assert (made.views[STRETCH].canvases[0] == (9, 8, 7)).all()
    assert made.samples[1].problem.reason == "decode.too_large"


def test_scaled_decoding_keeps_sizes_boxes_and_maps_in_source_pixels() -> None:
    encoded = Image.open(io.BytesIO(PORTRAITS)).resize((1280, 850))
    buffer = io.BytesIO()
    encoded.save(buffer, "JPEG", quality=95)
    boxes = TWO_BOXES * 2
    whole = prepare(sample(buffer.getvalue(), boxes))
    reduced = prepare(sample(buffer.getvalue(), boxes), decode=DecodeSpec(scaled=True))
    assert reduced.samples[0].size == (850, 1280)
    for spec in (STRETCH, CROP):  # views of regions begin and end at reduced pixels
        assert reduced.views[spec].to_source == whole.views[spec].to_source
        difference = np.abs(reduced.views[spec].canvases.astype(int) - whole.views[spec].canvases)
        # crops are not antialiased: from fewer pixels they are smoother
        assert difference.mean() < (6 if spec is CROP else 2)
        assert difference.any()
