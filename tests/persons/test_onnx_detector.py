"""Detectors of the user's own: every layout of outputs, exported by torch and run for real."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from sapiens_batch.errors import SpecError
from sapiens_batch.images.decoded import DecodedImage
from sapiens_batch.persons.detector import detector_digest
from sapiens_batch.persons.onnx_detector import load_onnx_detector
from sapiens_batch.records import Array
from tests.persons.images import image_of
from tests.persons.onnx_models import (
    RED,
    SCORE,
    Cells,
    Columns,
    EndToEnd,
    RedFinder,
    Rows,
    constant,
    export,
)
from tests.persons.test_detector import detector_spec, found, iou, photo

pytest.importorskip("onnxruntime", reason="the extra `detect` is not installed")

NAMES = "{0: 'person', 1: 'bicycle'}"
SIZE = (128, 192)
IMAGE = torch.zeros(1, 3, *SIZE)


def picture(height: int, width: int, box: tuple[int, int, int, int]) -> DecodedImage:
    """Bluish, with a red rectangle (x, y, w, h)."""
    pixels = np.full((height, width, 3), (10, 60, 120), np.uint8)
    x, y, box_width, box_height = box
    pixels[y : y + box_height, x : x + box_width] = RED
    return image_of(pixels)


def cells(height: int, width: int) -> Array:
    """Corner x, y and side of the cells of strides 8, 16, 32, row by row."""
    return np.array(
        [
            (x, y, stride)
            for stride in (8, 16, 32)
            for y in range(0, height, stride)
            for x in range(0, width, stride)
        ]
    )


def finds_the_rectangle(model: Path, **settings: object) -> None:
    spec = detector_spec(model=str(model), **settings)
    for height, width, box in (
        (400, 300, (60, 100, 120, 160)),  # higher than the input's shape
        (150, 600, (300, 30, 150, 90)),  # wider
        (64, 64, (16, 8, 24, 40)),  # enlarged
    ):
        (persons,) = found(spec, picture(height, width, box))
        assert len(persons.boxes) == 1
        # edges fall on whole pixels of the input
        tolerance = max(height / SIZE[0], width / SIZE[1])
        np.testing.assert_allclose(persons.boxes[0], box, atol=1.05 * tolerance)


def as_columns(path: Path, module: nn.Module | None = None, **metadata: str) -> Path:
    names = {"inputs": ["images"], "outputs": ["output0"]}
    return export(path, module or Columns(), [IMAGE], names, metadata=metadata)


class TestLayouts:
    def test_columns_of_yolo_v8_to_11(self, tmp_path: Path) -> None:
        finds_the_rectangle(as_columns(tmp_path / "a.onnx"))

    def test_a_score_is_the_class_probability_and_the_best_class_decides(
        self, tmp_path: Path
    ) -> None:
        spec = detector_spec(model=str(as_columns(tmp_path / "a.onnx")), nms_iou=1.0)
        (persons,) = found(spec, picture(128, 192, (20, 30, 60, 80)))
        np.testing.assert_allclose(persons.scores, [SCORE], atol=1e-6)

    def test_columns_with_mask_coefficients_need_names(self, tmp_path: Path) -> None:
        module = Columns(person=0, num_classes=2, extra=32)
        model = as_columns(tmp_path / "a.onnx", module, names=NAMES, task="segment")
        assert load_onnx_detector(str(model), None).layout.num_classes == 2
        finds_the_rectangle(model)
        unnamed = as_columns(tmp_path / "b.onnx", module)
        with pytest.raises(SpecError, match=r"34 classes .* persons\.detector\.person_class"):
            load_onnx_detector(str(unnamed), None)

    def test_columns_of_a_dynamic_size_are_given_the_size_of_the_metadata(
        self, tmp_path: Path
    ) -> None:
        model = export(
            tmp_path / "a.onnx",
            Columns(),
            [IMAGE],
            {"inputs": ["images"], "outputs": ["output0"]},
            dynamic={"images": {0: "batch", 2: "height", 3: "width"}, "output0": {2: "anchors"}},
            metadata={"imgsz": str(list(SIZE))},
        )
        finds_the_rectangle(model)

    def test_rows_of_yolo_v5(self, tmp_path: Path) -> None:
        names = {"inputs": ["images"], "outputs": ["output"]}
        model = export(tmp_path / "a.onnx", Rows(3 * len(cells(*SIZE))), [IMAGE], names)
        finds_the_rectangle(model)
        (persons,) = found(detector_spec(model=str(model)), picture(128, 192, (20, 30, 60, 80)))
        np.testing.assert_allclose(persons.scores, [SCORE / 2], atol=1e-6)

    @pytest.mark.parametrize("raw", [True, False])
    def test_cells_of_yolox_raw_and_decoded(self, tmp_path: Path, raw: bool) -> None:
        names = {"inputs": ["images"], "outputs": ["output"]}
        model = export(tmp_path / "a.onnx", Cells(cells(*SIZE), raw=raw), [IMAGE], names)
        finds_the_rectangle(model)

    def test_end_to_end_rows_beside_other_outputs(self, tmp_path: Path) -> None:
        names = {"inputs": ["images"], "outputs": ["output0", "maps"]}
        model = export(tmp_path / "a.onnx", EndToEnd(), [IMAGE], names, metadata={"names": NAMES})
        finds_the_rectangle(model)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
    def test_channels_last_are_given_values_up_to_255(
        self, tmp_path: Path, dtype: torch.dtype
    ) -> None:
        module = EndToEnd(unit=255, channels_last=True)
        image = torch.zeros(1, *SIZE, 3, dtype=dtype)
        names = {"inputs": ["image"], "outputs": ["detections", "maps"]}
        model = export(tmp_path / "a.onnx", module, [image], names)
        finds_the_rectangle(model, person_class=0)


@pytest.fixture(scope="module")
def exported(detr: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The DETR of the other tests, with the files that exporters write beside it."""
    from transformers import AutoModelForObjectDetection

    folder = tmp_path_factory.mktemp("exported")
    for name in ("config.json", "preprocessor_config.json"):
        (folder / name).write_bytes((detr / name).read_bytes())
    axes = {"pixel_values": {2: "h", 3: "w"}, "pixel_mask": {1: "h", 2: "w"}}
    export(
        folder / "model.onnx",
        _Detr(AutoModelForObjectDetection.from_pretrained(detr)),
        [torch.rand(1, 3, 64, 96), torch.ones(1, 64, 96, dtype=torch.int64)],
        {"inputs": list(axes), "outputs": ["logits", "pred_boxes"]},
        dynamic=axes,
    )
    return folder


class TestTransformersExports:
    @pytest.mark.parametrize("name", ["portraits", "photographer", "astronaut"])
    def test_finds_what_the_model_itself_finds(self, detr: Path, exported: Path, name: str) -> None:
        image = photo(name)
        (expected,) = found(detector_spec(model=str(detr), nms_iou=1.0), image)
        model = str(exported / "model.onnx")
        (persons,) = found(detector_spec(model=model, nms_iou=1.0), image)
        assert len(persons.boxes) == len(expected.boxes) > 0
        # the two resize by other code, which rounds some pixels differently
        np.testing.assert_allclose(persons.boxes, expected.boxes, atol=1.0)
        np.testing.assert_allclose(persons.scores, expected.scores, atol=1e-3)

    def test_the_files_beside_it_are_part_of_its_identity(
        self, exported: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "onnx").mkdir()
        (tmp_path / "onnx" / "model.onnx").write_bytes((exported / "model.onnx").read_bytes())
        for name in ("config.json", "preprocessor_config.json"):
            (tmp_path / name).write_bytes((exported / name).read_bytes())
        one, other = (
            detector_spec(model=str(folder / "model.onnx"))
            for folder in (exported, tmp_path / "onnx")
        )
        assert detector_digest(one) == detector_digest(other)
        processor = json.loads((exported / "preprocessor_config.json").read_text())
        processor["image_mean"] = [0.5, 0.5, 0.5]
        (tmp_path / "onnx" / "preprocessor_config.json").write_text(json.dumps(processor))
        assert load_onnx_detector(other.detector_section.model, None).digest != detector_digest(one)

    @pytest.mark.parametrize(
        ("columns", "num_classes", "person"), [(92, 91, 1), (91, 91, 1), (80, 80, 0), (81, 80, 0)]
    )
    def test_coco_classes_are_known_by_their_number(
        self, tmp_path: Path, columns: int, num_classes: int, person: int
    ) -> None:
        names = {"inputs": ["pixel_values"], "outputs": ["logits", "pred_boxes"]}
        model = export(tmp_path / "a.onnx", _Queries(columns, person), [IMAGE], names)
        detector = load_onnx_detector(str(model), None)
        assert (detector.layout.num_classes, detector.person_class) == (num_classes, person)
        (persons,) = found(detector_spec(model=str(model)), picture(100, 200, (1, 1, 2, 2)))
        np.testing.assert_allclose(persons.boxes, [[50, 25, 100, 50]], atol=1e-3)


class _Detr(nn.Module):
    """What exporters leave of a transformers model: tensors in, tensors out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: Tensor, pixel_mask: Tensor) -> tuple[Tensor, Tensor]:
        found = self.model(pixel_values=pixel_values, pixel_mask=pixel_mask)
        return found.logits, found.pred_boxes


class _Queries(nn.Module):
    """One query that is a person in the middle, one that is not."""

    def __init__(self, columns: int, person: int) -> None:
        super().__init__()
        self.columns, self.person = columns, person

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        logits = torch.full((1, 2, self.columns), -9.0) + 0 * pixel_values.mean()
        logits[0, 0, self.person] = 4
        logits[0, 1, self.person + 1] = 4
        return logits, torch.full((1, 2, 4), 0.5)


class TestIdentity:
    def test_neighbours_change_nothing(self, tmp_path: Path) -> None:
        spec = detector_spec(model=str(as_columns(tmp_path / "a.onnx")))
        images = [picture(100, 80 + 40 * i, (5 + i, 7, 30, 40)) for i in range(3)]
        for image, together in zip(images, found(spec, *images), strict=True):
            (alone,) = found(spec, image)
            np.testing.assert_array_equal(together.boxes, alone.boxes)

    def test_content_and_class_decide_the_digest_and_the_name_does_not(
        self, tmp_path: Path
    ) -> None:
        one = as_columns(tmp_path / "a.onnx")
        copy = tmp_path / "b.onnx"
        copy.write_bytes(one.read_bytes())
        other = as_columns(tmp_path / "c.onnx", names=str(dict(enumerate(["cat", "person"]))))
        digests = [load_onnx_detector(str(path), None).digest for path in (one, copy, other)]
        assert digests[0] == digests[1] != digests[2]
        assert load_onnx_detector(str(one), 3).digest != digests[0]

    def test_an_address_is_read_like_a_path(self, tmp_path: Path) -> None:
        import fsspec

        data = as_columns(tmp_path / "a.onnx").read_bytes()
        fsspec.filesystem("memory").pipe_file("/models/a.onnx", data)
        remote = load_onnx_detector("memory://models/a.onnx", None)
        assert remote.digest == load_onnx_detector(str(tmp_path / "a.onnx"), None).digest


class TestClasses:
    def test_names_decide_and_the_spec_overrides_them(self, tmp_path: Path) -> None:
        module = Columns(person=1, num_classes=3)
        model = as_columns(tmp_path / "a.onnx", module, names="['cat', 'Person', 'dog']")
        assert load_onnx_detector(str(model), None).person_class == 1
        assert load_onnx_detector(str(model), 2).person_class == 2
        finds_the_rectangle(model)

    def test_a_model_of_one_class_is_taken_for_a_person_detector(self, tmp_path: Path) -> None:
        names = {"inputs": ["images"], "outputs": ["output"]}
        module = Rows(3 * len(cells(*SIZE)), num_classes=1)
        assert (
            load_onnx_detector(
                str(export(tmp_path / "a.onnx", module, [IMAGE], names)), None
            ).layout.name
            == "rows"
        )  # six columns too, but one row for each anchor

    def test_a_model_that_knows_no_persons_is_refused(self, tmp_path: Path) -> None:
        module = Columns(num_classes=2)
        model = as_columns(tmp_path / "a.onnx", module, names="['cat', 'dog']")
        with pytest.raises(SpecError, match="no class `person`; its classes begin with cat, dog"):
            load_onnx_detector(str(model), None)

    def test_a_number_beyond_the_classes_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SpecError, match="person_class: 80, but the model knows 80 classes"):
            load_onnx_detector(str(as_columns(tmp_path / "a.onnx")), 80)

    def test_a_number_for_another_kind_of_detector_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="person_class: has no effect on movenet"):
            detector_spec(person_class=0)


class TestRefusals:
    def test_unknown_outputs_are_listed_beside_the_supported_ones(self, shared: Path) -> None:
        model = shared / "models" / "FastestDet.onnx"
        with pytest.raises(SpecError, match=r"`758` \(1, 85, 22, 22\); supported are `logits`"):
            load_onnx_detector(str(model), None)

    def test_unknown_inputs_are_listed(self, tmp_path: Path) -> None:
        class TwoImages(RedFinder):
            def forward(self, images: Tensor, others: Tensor) -> Tensor:
                return self.boxes(images) + others.mean()

        names = {"inputs": ["images", "others"], "outputs": ["output"]}
        model = export(tmp_path / "a.onnx", TwoImages(), [IMAGE, IMAGE], names)
        with pytest.raises(SpecError, match=r"`images` \(1, 3, 128, 192\).*`others`"):
            load_onnx_detector(str(model), None)

    def test_tasks_without_upright_boxes(self, tmp_path: Path) -> None:
        with pytest.raises(SpecError, match="for the task obb"):
            load_onnx_detector(str(as_columns(tmp_path / "a.onnx", task="obb")), None)

    def test_files_that_are_no_graph_or_not_there(self, tmp_path: Path) -> None:
        (tmp_path / "a.onnx").write_bytes(b"no graph")
        with pytest.raises(SpecError, match="cannot be opened by onnxruntime"):
            load_onnx_detector(str(tmp_path / "a.onnx"), None)
        with pytest.raises(SpecError, match="does not exist"):
            load_onnx_detector(str(tmp_path / "b.onnx"), None)

    def test_a_processor_whose_size_is_unknown(self, tmp_path: Path) -> None:
        names = {"inputs": ["pixel_values"], "outputs": ["logits", "pred_boxes"]}
        axes = {"pixel_values": {2: "h", 3: "w"}}
        model = export(tmp_path / "a.onnx", _Queries(92, 1), [IMAGE], names, dynamic=axes)
        (tmp_path / "preprocessor_config.json").write_text('{"size": {"max_height": 9}}')
        with pytest.raises(SpecError, match=r"preprocessor_config\.json has the size"):
            load_onnx_detector(str(model), None)

    def test_outputs_that_may_mean_two_things(self, tmp_path: Path) -> None:
        # 84 cells of 85 values, or 80 classes of 85 candidates
        path = constant(tmp_path / "a.onnx", np.zeros((1, 84, 85), np.float32), (64, 64))
        with pytest.raises(SpecError, match="may be `cells` or `columns`; export it with"):
            load_onnx_detector(str(path), None)

    def test_mask_coefficients_are_not_counted_as_classes(self, tmp_path: Path) -> None:
        class WithMasks(Columns):
            def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
                return super().forward(images), torch.zeros(1, 32, 32, 48)

        names = {"inputs": ["images"], "outputs": ["output0", "output1"]}
        module = WithMasks(num_classes=80, extra=32)
        bare = export(tmp_path / "a.onnx", module, [IMAGE], names)
        with pytest.raises(SpecError, match=r"`output1` \(1, 32, 32, 48\).*`names`"):
            load_onnx_detector(str(bare), 0)
        labels = {"names": str(["person", *(f"class {i}" for i in range(1, 80))])}
        finds_the_rectangle(export(tmp_path / "b.onnx", module, [IMAGE], names, metadata=labels))

    def test_a_graph_that_is_bound_to_a_size_which_it_does_not_declare(
        self, tmp_path: Path
    ) -> None:
        class Bound(_Queries):
            def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
                logits, boxes = super().forward(pixel_values)
                return logits + 0 * (pixel_values * torch.ones(1, 3, *SIZE)).mean(), boxes

        names = {"inputs": ["pixel_values"], "outputs": ["logits", "pred_boxes"]}
        axes = {"pixel_values": {2: "h", 3: "w"}}
        model = export(tmp_path / "a.onnx", Bound(92, 1), [IMAGE], names, dynamic=axes)
        with pytest.raises(SpecError, match=r"cannot be run on an image of 800 x 1248 px"):
            load_onnx_detector(str(model), None)
        size = {"size": {"height": SIZE[0], "width": SIZE[1]}}
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(size))
        assert load_onnx_detector(str(model), None).person_class == 1

    def test_a_graph_that_gives_another_shape_than_it_declares(self, tmp_path: Path) -> None:
        found = np.zeros((2, 50, 6), np.float32)
        path = constant(tmp_path / "a.onnx", found, SIZE, declared=("batch", 50, 6))
        with pytest.raises(SpecError, match=r"`output0` .*gives \(2, 50, 6\)"):
            load_onnx_detector(str(path), 0)

    def test_cells_that_are_not_finite_on_a_grey_image(self, tmp_path: Path) -> None:
        found = np.full((1, len(cells(*SIZE)), 85), np.nan, np.float32)
        with pytest.raises(SpecError, match="not finite on a grey image"):
            load_onnx_detector(str(constant(tmp_path / "a.onnx", found, SIZE)), None)


def test_a_published_detector_with_suppression_inside_finds_people(shared: Path) -> None:
    model = shared / "models" / "centernet.onnx"
    spec = detector_spec(model=str(model), person_class=0)
    (persons,) = found(spec, photo("astronaut"))
    assert iou(persons.boxes[0], [9.4, 7.6, 359.5, 504.4]) > 0.5
