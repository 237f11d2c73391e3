"""Encoders through torch.compile: same encodings, few shapes, a clear refusal."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter

from sapiens_batch.errors import SpecError
from sapiens_batch.labeler import Labeler
from sapiens_batch.labeler.compiled import CompiledEncoder
from sapiens_batch.models.encoder import Stage
from sapiens_batch.models.weights import AnyEncoder, load_encoder, resolve_checkpoint
from tests.labeler.test_labeler import TASKS, label

LAST = Stage(3, normalised=True)


@pytest.fixture(scope="module")
def encoder() -> AnyEncoder:
    checkpoint = resolve_checkpoint("demo", head="seg")
    cpu = torch.device("cpu")
    return load_encoder(checkpoint, rope_dtype="float32", device=cpu, dtype=torch.float32)


def noise(count: int) -> torch.Tensor:
    return torch.randn(count, 3, 64, 48, generator=torch.Generator().manual_seed(count))


def test_one_to_eight_views_are_compiled_four_times_and_encoded_alike(encoder: AnyEncoder) -> None:
    counter = CompileCounter()
    compiled = CompiledEncoder(encoder, backend=counter)
    with torch.inference_mode():
        for count in (8, 1, 5, 2, 3, 7, 4, 6):
            found, plain = compiled(noise(count), [LAST]), encoder(noise(count), [LAST])
            assert found.grid == plain.grid
            torch.testing.assert_close(found.tokens, plain.tokens, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(found.stages[LAST], plain.stages[LAST], rtol=1e-4, atol=1e-4)
    # a graph for each of 1, 2, 4 and 8 views; more would mean that the forward pass is torn
    assert counter.frame_count == 4


@pytest.mark.slow
def test_each_encoder_has_its_own_limit_of_shapes(encoder: AnyEncoder) -> None:
    counter = CompileCounter()
    with torch.inference_mode():
        for _ in range(3):
            compiled = CompiledEncoder(encoder, backend=counter)
            for count in (1, 2, 4, 8):
                compiled(noise(count), [LAST])
    assert counter.frame_count == 12


def test_a_machine_that_cannot_compile_is_told_so(encoder: AnyEncoder) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("no working C++ compiler found")

    compiled = CompiledEncoder(encoder, backend=refuse)
    with (
        torch.inference_mode(),
        pytest.raises(SpecError, match=r"runtime\.compile: true, but .* no working C\+\+ compiler"),
    ):
        compiled(noise(1), [LAST])


@pytest.mark.slow
# generating code imports modules of torch that torch itself deprecates
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(shutil.which("g++") is None, reason="generated code needs a C++ compiler")
def test_labels_of_compiled_encoders_equal_the_plain_ones() -> None:
    tasks = {name: TASKS[name] for name in ("embedding", "seg")}
    plain = label(Labeler.load(tasks, device="cpu", batch_views=2), 2)
    compiled = label(Labeler.load(tasks, device="cpu", batch_views=2, compiled=True), 2)
    name = "embedding"
    np.testing.assert_allclose(
        compiled[name].columns[name], plain[name].columns[name], rtol=1e-4, atol=1e-4
    )
    assert (compiled["seg"].array == plain["seg"].array).mean() > 0.9999
