"""Reading a COCO annotation file with images beside it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sapiens_batch.errors import InputError
from sapiens_batch.records import Problem
from sapiens_batch.sources import make_source
from sapiens_batch.spec.job import SourceSpec
from tests.conformance.source_contract import SourceContract, samples_of

PERSON, DOG = {"id": 1, "name": "person"}, {"id": 7, "name": "dog"}


def annotation(image_id: Any, bbox: Any, **fields: Any) -> dict[str, Any]:
    return {"id": 1, "image_id": image_id, "category_id": 1, "iscrowd": 0, "bbox": bbox, **fields}


def write_coco(folder: Path, images: list[Any], annotations: list[Any], *categories: Any) -> Path:
    path = folder / "annotations.json"
    document = {"images": images, "annotations": annotations, "categories": list(categories)}
    path.write_text(json.dumps(document))
    for image in images:
        (folder / image["file_name"]).parent.mkdir(exist_ok=True)
        (folder / image["file_name"]).write_bytes(str(image["id"]).encode())
    return path


class TestCocoSource(SourceContract):
    SHARD_KEYS = ("a.jpg..b/a.jpg", "c.jpg..c.jpg")
    SAMPLE_KEYS = (("a.jpg", "b/a.jpg"), ("c.jpg",))

    def write_corpus(self, folder: Path) -> None:
        images = [
            {"id": 9, "file_name": "c.jpg"},
            {"id": 1, "file_name": "a.jpg"},
            {"id": "x", "file_name": "b/a.jpg"},
        ]
        write_coco(folder, images, [annotation(9, [1, 2, 3, 4])], PERSON)
        os.utime(folder / "annotations.json", (1_000_000_000, 1_000_000_000))
        (folder / "a.jpg").unlink()

    def spec(self, folder: Path) -> SourceSpec:
        return SourceSpec(format="coco", uri=str(folder / "annotations.json"), shard_samples=2)


def test_boxes_are_those_of_people_that_are_no_crowd(tmp_path: Path) -> None:
    annotations = [
        annotation(1, [1, 2, 3, 4], conf=0.5),
        annotation(1, [0, 0, 9, 9], iscrowd=1),
        annotation(1, [5, 5, 5, 5], category_id=7),
        annotation(1, [-1, 0, 0, float("nan")], conf=0.25),
    ]
    images = [{"id": 1, "file_name": "1.jpg", "width": 640}, {"id": 2, "file_name": "2.jpg"}]
    path = write_coco(tmp_path, images, annotations, PERSON, DOG)
    spec = SourceSpec(
        format="coco", uri=str(path), box_scores="conf", columns=["image_id", "width"]
    )
    source = make_source(spec)
    (shard,) = source.plan()
    first, second = samples_of(source, shard)
    assert first.boxes is not None and str(first.boxes.tolist()) == (
        "[[1.0, 2.0, 3.0, 4.0], [-1.0, 0.0, 0.0, nan]]"
    )
    assert first.box_scores is not None and first.box_scores.tolist() == [0.5, 0.25]
    assert first.extra == {"image_id": 1, "width": 640}
    assert second.boxes is not None and second.boxes.shape == (0, 4)


def test_file_names_that_repeat_and_stray_annotations_are_reported(tmp_path: Path) -> None:
    images = [
        {"id": 1, "file_name": "a.jpg"},
        {"id": 2, "file_name": "a.jpg"},
        {"id": 3, "file_name": "b.jpg"},
    ]
    path = write_coco(tmp_path, images, [annotation(404, [0, 0, 1, 1])], PERSON)
    source = make_source(SourceSpec(format="coco", uri=str(path), shard_samples=1))
    items = [item for shard in source.plan() for item in source.read(shard)]
    reasons = [
        item.reason if isinstance(item, Problem) else item.problem and item.problem.reason
        for item in items
    ]
    assert reasons == ["source.duplicate_key", "source.unknown_image", None]


def test_a_selection_is_made_before_shards_are_cut(tmp_path: Path) -> None:
    images = [{"id": number, "file_name": f"{number}.jpg"} for number in range(5)]
    path = write_coco(tmp_path, images, [annotation(3, [1, 2, 3, 4])], PERSON)
    np.save(tmp_path / "keys.npy", np.array(["0.jpg", "3.jpg", "4.jpg"]))
    spec = SourceSpec(
        format="coco", uri=str(path), shard_samples=2, select=str(tmp_path / "keys.npy")
    )
    assert [shard.members for shard in make_source(spec).plan()] == [
        ("0.jpg", "3.jpg"),
        ("4.jpg",),
    ]


def test_a_box_that_is_not_four_numbers_quarantines_the_image(tmp_path: Path) -> None:
    path = write_coco(tmp_path, [{"id": 1, "file_name": "a.jpg"}], [annotation(1, [1, 2])], PERSON)
    source = make_source(SourceSpec(format="coco", uri=str(path)))
    (shard,) = source.plan()
    (sample,) = samples_of(source, shard)
    assert sample.problem is not None
    assert sample.problem.reason == "source.bad_boxes"


def test_annotations_that_changed_after_planning_are_refused(tmp_path: Path) -> None:
    path = write_coco(tmp_path, [{"id": 1, "file_name": "a.jpg"}], [], PERSON)
    source = make_source(SourceSpec(format="coco", uri=str(path)))
    (shard,) = source.plan()
    write_coco(tmp_path, [{"id": 1, "file_name": "a.jpg"}], [annotation(1, [1, 2, 3, 4])], PERSON)
    with pytest.raises(InputError, match="has changed since it was planned"):
        list(source.read(shard))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a COCO file"),
        ('{"images": [{"id": 1}]}', "has no file_name"),
        ('{"images": []}', "lists no images"),
        (
            '{"images": [{"id": 1, "file_name": "a"}], "categories": '
            '[{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]}',
            "no category named 'person', only cat, dog",
        ),
    ],
)
def test_a_file_that_is_no_coco_is_an_input_error(
    tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(InputError, match=message):
        list(make_source(SourceSpec(format="coco", uri=str(tmp_path / "x.json"))).plan())


def test_a_folder_is_told_to_give_annotation_file_and_root(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"source\.uri: .*folder.*annotation file.*`root:`"):
        list(make_source(SourceSpec(format="coco", uri=str(tmp_path))).plan())
