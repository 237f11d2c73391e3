"""Names of keypoints and classes come from somebody who knows, never from their number alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sapiens_batch.errors import SpecError, WeightsError
from sapiens_batch.models.weights import Checkpoint, resolve_checkpoint
from sapiens_batch.tasks.vocabulary import BUILT_IN, load_vocabulary, vocabulary_of


@pytest.fixture
def pose() -> Checkpoint:
    return resolve_checkpoint("demo", head="pose")


def own(checkpoint: Checkpoint, file: str = "mine.safetensors") -> Checkpoint:
    """The same weights as a file of somebody's."""
    return replace(checkpoint, id="mine", demo=False, path=Path(file))


@pytest.mark.parametrize("name", BUILT_IN)
def test_swapping_left_and_right_twice_changes_nothing(name: str, pose: Checkpoint) -> None:
    loaded = load_vocabulary(name, "tasks.pose.vocabulary")
    known = vocabulary_of(
        replace(pose, vocabulary=loaded), "keypoints", count := len(loaded["names"])
    )
    assert [known.mirrored[known.mirrored[channel]] for channel in range(count)] == list(
        range(count)
    )
    assert known.flip_pairs


@pytest.mark.parametrize("name", ["seg29", "seg28_v1", "cihp20", "lip20"])
def test_every_class_has_a_name_and_a_colour(name: str) -> None:
    known = load_vocabulary(name, "tasks.seg.vocabulary")
    assert len(known["names"]) == len(known["palette_rgb"])


def test_a_number_alone_chooses_no_names(pose: Checkpoint) -> None:
    found = vocabulary_of(own(pose), "keypoints", 308)
    assert found.names[:2] == ("keypoint_0", "keypoint_1")
    assert found.flip_pairs is None
    assert found.source.startswith("none: nothing names these 308 keypoints")


@pytest.mark.parametrize(
    ("file", "what", "count", "first"),
    [
        ("sapiens2_0.8b_pose.safetensors", "keypoints", 308, "nose"),
        ("sapiens_0.3b_coco_best_coco_AP_796.pth", "keypoints", 17, "nose"),
        ("sapiens_1b_coco_wholebody_best_coco_wholebody_AP_727.pth", "keypoints", 133, "nose"),
        ("sapiens2_1b_seg.safetensors", "classes", 29, "Background"),
        ("sapiens_1b_goliath_best_goliath_mIoU_7994_epoch_151.pth", "classes", 28, "Background"),
        ("sapiens_1b_cihp_best.pth", "classes", 20, "Background"),
    ],
)
def test_names_of_released_files_are_a_source(
    pose: Checkpoint, file: str, what: str, count: int, first: str
) -> None:
    found = vocabulary_of(own(pose, file), what, count)
    assert found.names[0].lower() == first.lower()


def test_a_released_file_with_channels_of_its_own_has_none_of_the_published_names(
    pose: Checkpoint,
) -> None:
    found = vocabulary_of(own(pose, "sapiens2_1b_seg.safetensors"), "classes", 5)
    assert found.names == tuple(f"class_{channel}" for channel in range(5))


def test_names_beside_the_weights_are_taken(pose: Checkpoint) -> None:
    config = replace(pose.config, names=("hand", "foot", "tail"), flip_pairs=((0, 1),))
    found = vocabulary_of(replace(own(pose), config=config), "keypoints", 3)
    assert (found.names, found.mirrored, found.source) == (
        ("hand", "foot", "tail"), [1, 0, 2], "config.json"
    )  # fmt: skip
    with pytest.raises(WeightsError, match="names 3, pairs up to 1, the head has 4 channels"):
        vocabulary_of(replace(own(pose), config=config), "keypoints", 4)


def test_pairs_beside_the_weights_that_are_the_published_ones_bring_their_names(
    pose: Checkpoint,
) -> None:
    pairs = tuple((b, a) for a, b in load_vocabulary("keypoints17", "x")["flip_pairs"])
    config = replace(pose.config, flip_pairs=pairs)
    assert vocabulary_of(replace(own(pose), config=config), "keypoints", 17).names[0] == "nose"


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("{", "Expecting"),
        ("[]", "not a JSON object"),
        ('{"name": []}', "needs `names`"),
        ('{"names": ["a", 2]}', "names must be text"),
        ('{"names": ["a"], "flip_pairs": [[0, 1]]}', "must be numbers of names"),
        ('{"names": ["a"], "palette_rgb": [[0, 1]]}', "three numbers"),
        ('{"names": ["a"], "sigmas": []}', "a number for each name"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_refused(tmp_path: Path, content: str, match: str) -> None:
    path = tmp_path / "names.json"
    path.write_text(content)
    with pytest.raises(SpecError, match=f"(?s)tasks.seg.vocabulary.*{match}"):
        load_vocabulary(str(path), "tasks.seg.vocabulary")


def test_a_vocabulary_that_is_not_there_is_refused_with_what_there_is() -> None:
    with pytest.raises(SpecError, match=r"No such file.*or one of keypoints308"):
        load_vocabulary("nowhere.json", "tasks.pose.vocabulary")


def test_a_file_of_ones_own_is_read(tmp_path: Path, pose: Checkpoint) -> None:
    path = tmp_path / "names.json"
    path.write_text(json.dumps({"names": ["left", "right"], "flip_pairs": [[0, 1]]}))
    given = replace(pose, vocabulary=load_vocabulary(str(path), "tasks.pose.vocabulary"))
    found = vocabulary_of(given, "keypoints", 2)
    assert (found.names, found.mirrored, found.source) == (("left", "right"), [1, 0], "job file")
