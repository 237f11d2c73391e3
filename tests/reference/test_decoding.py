"""Decoded labels against the transformers port and the original code.

Deliberate differences: a keypoint without a positive peak is missing here, while both references
give a position near the corner of the crop. A positive peak whose surroundings are so negative that
nothing positive is left after smoothing keeps its pixel in the port, while the original divides by
the negative rest and fits the inverted map; `preprocess` says whom to follow. Normals have unit
length on the stored frame, while both references resize unit normals to the source and leave them
shorter there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from sapiens_batch.images.geometry import crop_map, letterbox, stretch_map
from sapiens_batch.models.heads import HeadOutput
from sapiens_batch.records import Affine, Array, Preprocess, Region, ViewBatch, ViewSpec
from sapiens_batch.tasks.base import Task
from sapiens_batch.tasks.heatmaps import decode_heatmaps
from sapiens_batch.tasks.matting import MattingTask
from sapiens_batch.tasks.normal import NormalTask
from sapiens_batch.tasks.pointmap import PointmapTask
from sapiens_batch.tasks.pose import PoseTask
from sapiens_batch.tasks.resize import resized
from sapiens_batch.tasks.seg import SegTask
from sapiens_batch.tasks.vocabulary import load_vocabulary
from tests.reference.conftest import Golden, LoadGolden

VIEW = (128, 96)
WHOLE = Region(0, 0, *VIEW)


def batch(
    spec: ViewSpec,
    to_source: Sequence[Affine],
    content: Sequence[Region],
    sizes: Sequence[tuple[int, int]],
) -> ViewBatch:
    canvases = np.zeros((len(sizes), spec.height, spec.width, 3), np.uint8)
    rows = tuple(range(len(sizes)))
    return ViewBatch(spec, canvases, tuple(to_source), tuple(content), tuple(sizes), rows)


def settled(heatmaps: Tensor, crops_to_source: Sequence[Affine]) -> Array:
    """Which keypoints stay within 0.005 px when the heatmap changes by rounding (1e-5 of it).

    Random weights give a few peaks without curvature in some direction, where a Newton step in
    float32 says little; there two correct implementations differ.
    """
    scale = np.array([[[affine.scale_x, affine.scale_y]] for affine in crops_to_source]) * 4
    exact, _ = decode_heatmaps(heatmaps)
    moves = []
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        noise = 1e-5 * torch.randn(heatmaps.shape, generator=generator)
        moved, _ = decode_heatmaps(heatmaps * (1 + noise))
        moves.append(((moved - exact).abs().numpy() * scale).max(-1))
    return np.max(moves, axis=0) < 0.005


def smoothed(heatmaps: Tensor) -> Tensor:
    """Heatmaps after an 11 x 11 Gaussian of sigma 2, zeros outside."""
    taps = torch.exp(-((torch.arange(11.0) - 5) ** 2) / 8)
    kernel = torch.outer(taps, taps) / taps.sum() ** 2
    return F.conv2d(heatmaps.transpose(0, 1), kernel[None, None], padding=5).transpose(0, 1)


def crops(case: Golden, task: Task) -> ViewBatch:
    sizes = [case.sizes[photo] for photo, _ in case.boxes]
    maps = [crop_map(box, VIEW) for _, box in case.boxes]
    return batch(task.view_spec, maps, [WHOLE] * len(sizes), sizes)


def letterboxes(case: Golden, task: Task) -> ViewBatch:
    placed = [letterbox(size, VIEW) for size in case.sizes]
    content, maps = zip(*placed, strict=True)
    return batch(task.view_spec, maps, content, case.sizes)


def test_keypoints_equal_the_ports_within_a_hundredth_of_a_pixel(
    golden: LoadGolden, pixels: dict[str, Tensor]
) -> None:
    case = golden("pose")
    task = PoseTask(case.spec(), case.checkpoint)
    views = crops(case, task)
    labels = task.decode(case.outputs(pixels["crops"]), views)
    scores = labels.columns["keypoint_scores"]
    np.testing.assert_allclose(scores, case.expected["scores"], rtol=1e-4, atol=1e-4)
    sure = (scores > 0.1) & settled(case.expected["heatmaps"], views.to_source)
    assert sure.mean() > 0.9
    expected = case.expected["keypoints"].numpy()
    np.testing.assert_allclose(labels.columns["keypoints"][sure], expected[sure], atol=0.01)


def test_the_flip_test_gives_the_ports_averaged_keypoints(
    golden: LoadGolden, pixels: dict[str, Tensor]
) -> None:
    case = golden("pose")
    task = PoseTask(case.spec(flip_test=True), case.checkpoint)
    plain = case.outputs(pixels["crops"])
    mirrored = case.outputs(pixels["crops"].flip(-1))
    merged = replace(plain, head=task.merge_mirrored(plain.head, mirrored.head))
    views = crops(case, task)
    labels = task.decode(merged, views)
    expected = case.expected["flip_keypoints"].numpy()
    average = (case.expected["heatmaps"] + case.expected["heatmaps_flipped_back"]) / 2
    sure = (case.expected["flip_scores"].numpy() > 0.1) & settled(average, views.to_source)
    assert sure.mean() > 0.9
    np.testing.assert_allclose(labels.columns["keypoints"][sure], expected[sure], atol=0.01)


def test_well_posed_heatmaps_decode_as_in_the_port(references: Path) -> None:
    """Rows 60 to 62 are flat, negative or constant: their position is not defined by the map."""
    case = load_file(references / "port" / "keypoint_decoding.safetensors")
    heatmaps = case["heatmaps"]
    positions, scores = decode_heatmaps(heatmaps)
    box = case["box_xywh"][0].numpy()
    crop = crop_map(box, (64, 48))
    found = crop.apply(positions[0].numpy())
    posed = [*range(60), 63]
    np.testing.assert_allclose(found[posed], case["keypoints"].numpy()[posed], atol=1e-3)
    np.testing.assert_allclose(
        scores[0, [*range(61), 62, 63]], case["scores"][[*range(61), 62, 63]]
    )
    assert torch.isnan(positions[0, 61]).all(), "a negative heatmap has no keypoint"
    assert scores[0, 61] == case["scores"][61]


def test_stable_heatmaps_decode_as_in_the_original_code(references: Path) -> None:
    case = load_file(references / "original" / "decode_udp" / "expected.safetensors")
    positions, _ = decode_heatmaps(case["heatmaps"][None], like=Preprocess.ORIGINAL)
    # the original scales heatmap pixels to the crop by 192/47 and 256/63
    found = positions[0].numpy() * np.array([192 / 47, 256 / 63])
    comparable = (case["stable"].bool() & (case["scores"] > 0)).numpy()
    assert comparable.sum() > 25
    expected = case["keypoints_crop"].numpy()
    np.testing.assert_allclose(found[comparable], expected[comparable], atol=1e-3)
    assert torch.isnan(positions[0][case["scores"] <= 0]).all()


def test_masks_at_the_size_of_the_photo_equal_the_ports(
    golden: LoadGolden, pixels: dict[str, Tensor]
) -> None:
    case = golden("seg")
    outputs = case.outputs(pixels["stretch"])
    for photo, size in enumerate(case.sizes):
        config = replace(case.checkpoint.config, image_size=size)
        task = SegTask(case.spec(), replace(case.checkpoint, config=config))
        to_source = stretch_map(size, size)
        views = batch(task.view_spec, [to_source], [Region(0, 0, *size)], [size])
        one = replace(outputs, head=replace(outputs.head, maps=outputs.maps[photo : photo + 1]))
        labels = task.decode(one, views)
        expected = case.expected[f"mask_source_{photo}"].numpy()
        assert (labels.array[0] == expected).mean() >= 0.9999
        counts = np.bincount(labels.array[0].ravel(), minlength=29)
        assert np.array_equal(labels.columns["seg_class_pixels"][0], counts)


def test_masks_at_the_size_of_the_model_equal_the_ports(
    golden: LoadGolden, pixels: dict[str, Tensor]
) -> None:
    case = golden("seg")
    task = SegTask(case.spec(), case.checkpoint)
    views = batch(task.view_spec, [stretch_map(VIEW, VIEW)] * 3, [WHOLE] * 3, [VIEW] * 3)
    labels = task.decode(case.outputs(pixels["stretch"]), views)
    assert (labels.array == case.expected["mask_model"].numpy()).mean() >= 0.9999


def test_normals_resized_to_the_photo_equal_the_ports_and_are_units_before(
    golden: LoadGolden, pixels: dict[str, Tensor]
) -> None:
    case = golden("normal")
    task = NormalTask(case.spec(dtype="float32"), case.checkpoint)
    views = letterboxes(case, task)
    labels = task.decode(case.outputs(pixels["letterbox"]), views)
    for photo, (frame, size) in enumerate(zip(labels.frames, case.sizes, strict=True)):
        normals = labels.array[photo][:, : frame.height, : frame.width]
        np.testing.assert_allclose(np.linalg.norm(normals, axis=0), 1, atol=1e-5)
        resized = F.interpolate(torch.tensor(normals)[None], size=size, mode="bilinear")[0]
        expected = case.expected[f"normals_source_{photo}"].float()
        torch.testing.assert_close(resized, expected, rtol=1e-3, atol=1e-3)


def test_metric_points_resized_to_the_photo_equal_the_ports(
    golden: LoadGolden, pixels: dict[str, Tensor]
) -> None:
    case = golden("pointmap")
    task = PointmapTask(case.spec(dtype="float32"), case.checkpoint)
    views = letterboxes(case, task)
    outputs = case.outputs(pixels["letterbox"])
    # random weights give scales below zero, which no camera has; points do not mind both signs
    signs = outputs.head.scale.sign()
    turned = HeadOutput(outputs.head.maps * signs[..., None, None], outputs.head.scale * signs)
    labels = task.decode(replace(outputs, head=turned), views)
    for photo, (frame, size) in enumerate(zip(labels.frames, case.sizes, strict=True)):
        points = torch.tensor(labels.array[photo][:, : frame.height, : frame.width])
        resized = F.interpolate(points[None], size=size, mode="bilinear")[0]
        expected = case.expected[f"pointmap_source_{photo}"].float()
        torch.testing.assert_close(resized, expected, rtol=2e-3, atol=2e-3)
    scales = case.expected["scales"][:, 0].abs().numpy()
    np.testing.assert_allclose(labels.columns["pointmap_scale"], scales, rtol=1e-4, atol=1e-4)


def test_foreground_and_alpha_equal_the_ports(
    golden: LoadGolden, pixels: dict[str, Tensor]
) -> None:
    case = golden("matting")
    task = MattingTask(case.spec(dtype="float32"), case.checkpoint)
    maps = [stretch_map(size, VIEW) for size in case.sizes]
    views = batch(task.view_spec, maps, [WHOLE] * len(maps), case.sizes)
    outputs = case.outputs(pixels["stretch"])
    foreground, alpha = outputs.head.maps.split([3, 1], dim=1)
    bound = {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(foreground, case.expected["foregrounds"], **bound)
    torch.testing.assert_close(alpha, case.expected["alphas"], **bound)
    labels = task.decode(outputs, views)
    for frame, row in zip(labels.frames, labels.array, strict=True):
        stored = torch.tensor(row[:, : frame.height, : frame.width])
        assert stored.isfinite().all()
        assert stored.min() >= 0
        assert stored.max() <= 1


def test_images_on_another_background_equal_the_ports(
    golden: LoadGolden, pixels: dict[str, Tensor]
) -> None:
    """`foreground + (1 - alpha) * background` at the size of the source, without our frame."""
    case = golden("matting")
    task = MattingTask(case.spec(dtype="float32"), case.checkpoint)
    background = torch.tensor([0, 177, 64])[:, None, None] / 255
    for photo, (maps, size) in enumerate(
        zip(case.outputs(pixels["stretch"]).head.maps, case.sizes, strict=True)
    ):
        label = task.finish(resized(maps, size).clone())
        composite = label[:3] + (1 - label[3:]) * background
        levels = (composite.clamp(0, 1) * 255.999).to(torch.uint8).int()
        expected = case.expected[f"composite_source_{photo}"].int()
        assert (levels - expected).abs().max() <= 1
        assert (levels == expected).float().mean() > 0.99


def test_the_original_demos_keypoints_come_out_of_its_own_crop(original: LoadGolden) -> None:
    """Photo and box of the original's demo, flip test on, rotary embedding in bfloat16."""
    case = original("sapiens2_pose")
    spec = case.spec(flip_test=True, rope_dtype="bfloat16", preprocess="original")
    names = load_vocabulary("keypoints308", "tasks.pose.vocabulary")
    task = PoseTask(spec, replace(case.checkpoint, vocabulary=names))
    photo = case.expected["photo_input"]
    plain = case.outputs(photo, rope_dtype="bfloat16")
    mirrored = case.outputs(photo.flip(-1), rope_dtype="bfloat16")
    merged = task.merge_mirrored(plain.head, mirrored.head)
    heatmaps = case.expected["photo_heatmaps_flip_averaged"][None]
    torch.testing.assert_close(merged.maps, heatmaps, rtol=2e-2, atol=2e-2)

    left, top, right, bottom = case.expected["photo_box_xyxy"].tolist()
    small = replace(task.view_spec, height=48, width=32)
    crop = crop_map((left, top, right - left, bottom - top), (48, 32))
    views = batch(small, [crop], [Region(0, 0, 48, 32)], [(425, 640)])
    labels = task.decode(replace(plain, head=replace(merged, maps=heatmaps)), views)
    stable = case.expected["photo_stable"].bool().numpy()
    stable &= (case.expected["photo_scores"] > 0).numpy()
    lonely = (smoothed(heatmaps).amax((-2, -1)) <= 0)[0].numpy()
    assert (lonely & stable).sum() > 10
    assert stable.sum() > 250
    found = labels.columns["keypoints"][0][stable]
    off = np.abs(found - case.expected["photo_keypoints"].numpy()[stable]) / crop.scale_x
    assert off.max() < 0.02, "crop pixels; stable means: moves less than this under 1e-5 noise"
    assert np.quantile(off, 0.9) < 1e-3
