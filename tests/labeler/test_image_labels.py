"""Images in Python's hands: from files, Pillow images and arrays to labels in source pixels."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sapiens_batch.errors import InputError, SampleError
from sapiens_batch.labeler import Labeler
from sapiens_batch.records import Array, Level
from sapiens_batch.spec.task import TaskSpec

DEMO = TaskSpec(checkpoint="demo")
BOX = [30.0, 20.0, 100.0, 150.0]


def picture(size: tuple[int, int] = (240, 200)) -> Array:
    coarse = np.random.default_rng(5).integers(0, 256, (*[n // 20 for n in size], 3))
    return coarse.repeat(20, axis=0).repeat(20, axis=1).astype(np.uint8)


def encoded(pixels: Array, orientation: int = 1) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", exif=exif)
    return stream.getvalue()


@pytest.fixture(scope="module")
def labeler() -> Labeler:
    tasks = {"pose": "demo", "seg": "demo", "normal": "demo", "embedding": "demo"}
    return Labeler.load(tasks, device="cpu", batch_views=2)


def test_a_file_a_pillow_image_and_an_array_get_the_same_labels(labeler: Labeler) -> None:
    pixels = picture()
    turned = np.ascontiguousarray(np.rot90(pixels))  # stored so that orientation 6 undoes it
    images = [pixels, encoded(turned, 6), Image.open(io.BytesIO(encoded(turned, 6)))]
    first, *others = labeler.label_images(images, [[BOX], [BOX], [BOX]])
    assert first.size == (240, 200)
    for other in others:
        assert other.size == (240, 200)
        for task, name in (("pose", "keypoint_scores"), ("embedding", "embedding")):
            np.testing.assert_allclose(
                other.column(task, name), first.column(task, name), rtol=1e-4, atol=1e-4
            )


def test_maps_come_in_source_pixels(labeler: Labeler) -> None:
    (labels,) = labeler.label_images([picture((200, 320))], [None])
    mask, normals = labels.map("seg"), labels.map("normal")
    assert mask.shape == (200, 320)
    assert mask.dtype == np.uint8
    assert mask.max() < 29
    assert normals.shape == (3, 200, 320)
    np.testing.assert_allclose(np.linalg.norm(normals.astype(float), axis=0), 1, atol=2e-3)
    assert labels.column("pose", "keypoints").shape == (0, 308, 2)


def test_persons_get_their_own_rows_and_maps() -> None:
    tasks = {"pose": DEMO, "seg": TaskSpec(checkpoint="demo", region=Level.PERSON)}
    labeler = Labeler.load(tasks, device="cpu")
    boxes = [[BOX, [100.0, 60.0, 80.0, 90.0]], [BOX]]
    both, one = labeler.label_images([picture(), picture()], boxes)
    assert both.column("pose", "keypoints").shape == (2, 308, 2)
    np.testing.assert_allclose(
        one.column("pose", "keypoint_scores"), both.column("pose", "keypoint_scores")[:1], atol=1e-4
    )
    mask = both.map("seg", person=1)
    inside = np.zeros((240, 200), bool)
    inside[60:150, 100:180] = True
    assert (mask[inside] < 29).all()
    assert (mask[~inside] == 255).all()
    with pytest.raises(ValueError, match="person is None"):
        both.map("seg")


def test_pose_without_boxes_is_refused_unless_each_image_is_a_person(labeler: Labeler) -> None:
    with pytest.raises(InputError, match=r"pose label persons.*whole_image"):
        labeler.label_images([picture()])
    (labels,) = labeler.label_images([picture()], persons="whole_image")
    assert labels.boxes.tolist() == [[0, 0, 200, 240]]
    assert labels.column("pose", "keypoints").shape == (1, 308, 2)


def test_tasks_of_whole_images_need_no_boxes() -> None:
    labeler = Labeler.load({"embedding": "demo"}, device="cpu", batch_views=2)
    labels = labeler.label_images([picture(), picture()[:, :, 0], picture()])
    assert [one.size for one in labels] == [(240, 200)] * 3
    assert labels[2].column("embedding", "embedding").shape == (48,)


def test_what_cannot_be_labeled_is_named(labeler: Labeler) -> None:
    with pytest.raises(InputError, match="image 1: box 0"):
        labeler.label_images([picture(), picture()], [None, [[5, 5, 0, 10]]])
    with pytest.raises(InputError, match="2 lists of boxes for 1 images"):
        labeler.label_images([picture()], [None, None])
    with pytest.raises(InputError, match="image 0 is an array of float32"):
        labeler.label_images([picture().astype(np.float32)], [None])
    with pytest.raises(SampleError):
        labeler.label_images([b"no image"], [None])


def test_a_path_is_read(tmp_path: Path) -> None:
    labeler = Labeler.load({"embedding": "demo"}, device="cpu", batch_views=2)
    path = tmp_path / "photo.png"
    path.write_bytes(encoded(picture()))
    by_text, by_path, by_bytes = labeler.label_images([str(path), path, path.read_bytes()])
    for one in (by_text, by_path):
        vectors = one.column("embedding", "embedding"), by_bytes.column("embedding", "embedding")
        np.testing.assert_allclose(*vectors, atol=1e-5)
    with pytest.raises(InputError, match=r"gone\.png does not exist"):
        labeler.label_images([tmp_path / "gone.png"])


def test_what_is_no_image_and_no_list_is_told_what_is_accepted(labeler: Labeler) -> None:
    with pytest.raises(InputError, match=r"image 0 is a int: give a path or address, the bytes"):
        labeler.label_images([7], [None])  # type: ignore[list-item]
    with pytest.raises(InputError, match="images is one str: give a list"):
        labeler.label_images("photo.png", [None])


def test_a_name_that_is_not_there_is_told_with_those_that_are(labeler: Labeler) -> None:
    (labels,) = labeler.label_images([picture()], [[BOX]])
    with pytest.raises(KeyError, match="no column 'keypoint'; there are keypoints, keyp"):
        labels.column("pose", "keypoint")
    with pytest.raises(KeyError, match=r"no column 'mask'; .*`map\('seg'\)` has its array"):
        labels.column("seg", "mask")
    with pytest.raises(KeyError, match="no task 'depth'; the labeler has pose, seg, normal"):
        labels.map("depth")


def test_a_matte_is_laid_over_another_background() -> None:
    (labels,) = Labeler.load({"matting": "demo"}, device="cpu").label_images([picture()])
    matte = labels.map("matting").astype(np.float32)
    over_blue = labels.composite((0, 0, 255))
    assert (over_blue.shape, over_blue.dtype) == ((240, 200, 3), np.uint8)
    expected = 255 * (matte[2] + 1 - matte[3])
    np.testing.assert_allclose(over_blue[..., 2], expected.clip(0, 255), atol=0.51)
    np.testing.assert_allclose(over_blue[..., 0], 255 * matte[0], atol=0.51)
    np.testing.assert_array_equal(labels.composite(np.zeros((240, 200, 3), np.uint8))[..., 2],
                                  labels.composite((0, 0, 0))[..., 2])  # fmt: skip
    with pytest.raises(ValueError, match="background is"):
        labels.composite(np.zeros((2, 2, 3), np.uint8))
