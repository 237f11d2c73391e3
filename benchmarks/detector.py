"""Precision and recall of a detector on photos in which every person is annotated.

`python benchmarks/detector.py FOLDER [--model MODEL] [--person-class N]`, with a `manifest.json`
that lists `photos` of `file`, `people` (each with a COCO `box`) and `every_person_annotated`. A box
is found if one of at least half overlap, not matched already, has the highest score left. One
threshold, no tuning.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from sapiens_batch.images.decode import decode
from sapiens_batch.persons import make_person_finder
from sapiens_batch.persons.base import Persons
from sapiens_batch.records import Array, Sample
from sapiens_batch.spec.job import PersonsSpec

MATCH_IOU = 0.5
LARGE_FRACTION = 0.25


def overlaps(one: Array, others: Array) -> Array:
    """IoU of a COCO box with (n, 4) others, continuous areas."""
    first = np.maximum(one[:2], others[:, :2])
    last = np.minimum(one[:2] + one[2:], others[:, :2] + others[:, 2:])
    shared = np.maximum(0, last - first).prod(axis=1)
    return np.asarray(shared / (one[2:].prod() + others[:, 2:].prod(axis=1) - shared))


def matched(found: Array, annotated: Array) -> list[int]:
    """Positions of the annotated boxes that were found, one for each box that is right."""
    free = list(range(len(annotated)))
    hits = []
    for box in found:
        if free and (iou := overlaps(box, annotated[free])).max() >= MATCH_IOU:
            hits.append(free.pop(int(iou.argmax())))
    return hits


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="movenet")
    parser.add_argument("--person-class", type=int, help="for an .onnx file without names")
    arguments = parser.parse_args()
    detector = {"model": arguments.model, "person_class": arguments.person_class}
    finder = make_person_finder(
        PersonsSpec.model_validate({"from": "detector", "detector": detector})
    )
    listed = json.loads((arguments.folder / "manifest.json").read_text())["photos"]
    complete = [photo for photo in listed if photo["every_person_annotated"]]
    num_found = num_right = num_people = large_found = num_large = 0
    seconds = 0.0
    for photo in complete:
        image = decode((arguments.folder / photo["file"]).read_bytes())
        started = time.process_time()
        (persons,) = finder.find([Sample(photo["file"], 0, b"")], [image])
        seconds += time.process_time() - started
        assert isinstance(persons, Persons)
        annotated = np.array([one["box"] for one in photo["people"]], float).reshape(-1, 4)
        large = annotated[:, 3] >= LARGE_FRACTION * image.size[0]
        hits = matched(persons.boxes, annotated)
        num_found += len(persons.boxes)
        num_right += len(hits)
        num_people += len(annotated)
        num_large += int(large.sum())
        large_found += int(large[hits].sum())
    print(f"{arguments.model}: {len(complete)} photos, {num_people} people, {num_found} boxes")
    print(f"precision {num_right / num_found:.2f}, recall {num_right / num_people:.2f}")
    print(f"recall of people over a quarter of the height: {large_found}/{num_large}")
    print(f"{1000 * seconds / len(complete):.0f} ms a photo on one core")


if __name__ == "__main__":
    main()
