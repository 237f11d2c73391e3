"""Tasks whose label is a finished map: matting, albedo, depth, and normals in the mirror."""

from __future__ import annotations

import numpy as np
import torch

from sapiens_batch.models.encoder import Encoding
from sapiens_batch.models.heads import HeadOutput
from sapiens_batch.models.weights import resolve_checkpoint
from sapiens_batch.records import Affine, Level, Region, ViewBatch, ViewKind
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.tasks import TASKS
from sapiens_batch.tasks.base import Outputs, Task
from tests.conformance.task_contract import TaskContract
from tests.tasks.conftest import MakeViews

ENCODING = Encoding(torch.zeros(1, 201, 48), (16, 12))


class TestMattingTask(TaskContract):
    name = "matting"


class TestAlbedoTask(TaskContract):
    name = "albedo"


class TestDepthTask(TaskContract):
    name = "depth"


def make(name: str, **settings: object) -> Task:
    checkpoint = resolve_checkpoint("demo", head=TASKS[name].head)
    return TASKS[name](TaskSpec(checkpoint="demo", **settings), checkpoint)


def test_matting_gives_premultiplied_foreground_and_alpha_on_the_frame(
    make_views: MakeViews,
) -> None:
    task = make("matting")
    maps = torch.zeros(1, 4, 256, 192)
    maps[0, :, :, :96] = torch.tensor([0.2, 0.4, 0.1, 0.5])[:, None, None]
    outputs = Outputs(ENCODING, HeadOutput(maps))
    labels = task.decode(outputs, make_views(task.view_spec, [(300, 450)]))
    frame = labels.frames[0]
    assert (frame.height, frame.width) == (128, 192)
    np.testing.assert_allclose(labels.array[0, :, 50, 20], [0.2, 0.4, 0.1, 0.5], atol=1e-3)
    assert (labels.array[0, :, :128, 100:] == 0).all()


def test_albedo_is_cut_to_the_range_of_colours(make_views: MakeViews) -> None:
    task = make("albedo")
    maps = torch.zeros(1, 3, 256, 192)
    maps[0, 0], maps[0, 1] = -0.5, 1.5
    labels = task.decode(
        Outputs(ENCODING, HeadOutput(maps)), make_views(task.view_spec, [(256, 192)])
    )
    assert labels.array[0, :, 7, 7].tolist() == [0, 1, 0]


def test_normals_and_points_change_side_in_the_mirror() -> None:
    for name in ("normal", "pointmap"):
        task = make(name, flip_test=True)
        mirrored = torch.zeros(1, 3, 256, 192)
        mirrored[0, :, 10, 4] = torch.tensor([0.5, 0.25, 1.0])
        back = task.unmirrored(mirrored)
        assert back[0, :, 10, 187].tolist() == [-0.5, 0.25, 1.0]
        assert mirrored[0, 0, 10, 4] == 0.5


def test_the_mirrored_scale_of_a_pointmap_is_averaged_too() -> None:
    task = make("pointmap", flip_test=True)
    maps = torch.ones(1, 3, 256, 192)
    merged = task.merge_mirrored(
        HeadOutput(maps, torch.tensor([[1.0]])), HeadOutput(maps, torch.tensor([[2.0]]))
    )
    assert merged.scale.tolist() == [[1.5]]


def test_the_box_of_a_person_has_its_own_frame() -> None:
    """A box of 30 x 60 px at (100, 40), stretched to the view."""
    task = make("depth", region=Level.PERSON)
    spec = task.view_spec
    assert task.schema.level is Level.PERSON
    assert spec.owner is Level.PERSON
    to_source = Affine(30 / 192, 60 / 256, 100 + 15 / 192 - 0.5, 40 + 30 / 256 - 0.5)
    views = ViewBatch(
        spec,
        np.zeros((1, 256, 192, 3), np.uint8),
        (to_source,),
        (Region(0, 0, 256, 192),),
        ((480, 640),),
        (0,),
    )
    ramp = torch.linspace(0, 1, 192).expand(1, 1, 256, 192)
    labels = task.decode(Outputs(ENCODING, HeadOutput(ramp)), views)
    frame = labels.frames[0]
    assert (frame.height, frame.width) == (256, 128)
    corner = frame.to_source.apply(np.array([-0.5, -0.5]))
    np.testing.assert_allclose(corner, [99.5, 39.5], atol=1e-9)
    corner = frame.to_source.apply(np.array([127.5, 255.5]))
    np.testing.assert_allclose(corner, [129.5, 99.5], atol=1e-9)
    assert spec.kind is ViewKind.STRETCH
