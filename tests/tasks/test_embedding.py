"""Embeddings from class tokens."""

from __future__ import annotations

import numpy as np
import torch

from sapiens_batch.models.encoder import Encoding
from sapiens_batch.models.weights import resolve_checkpoint
from sapiens_batch.spec.task import TaskSpec
from sapiens_batch.tasks.base import Outputs
from sapiens_batch.tasks.embedding import EmbeddingTask
from tests.conformance.task_contract import TaskContract
from tests.tasks.conftest import MakeViews


class TestEmbeddingTask(TaskContract):
    name = "embedding"


def test_the_raw_vector_comes_beside_the_unit_vector_where_asked(make_views: MakeViews) -> None:
    task = EmbeddingTask(TaskSpec(checkpoint="demo", raw=True), resolve_checkpoint("demo"))
    tokens = torch.zeros(1, 201, 48)
    tokens[0, 0, :2] = torch.tensor([3.0, -4.0])
    views = make_views(task.view_spec, [(10, 20)])
    labels = task.decode(Outputs(Encoding(tokens, (16, 12)), None), views)
    np.testing.assert_allclose(labels.columns["embedding"][0, :3], [0.6, -0.8, 0], atol=1e-7)
    np.testing.assert_allclose(labels.columns["embedding_raw"][0, :3], [3, -4, 0])


def test_patches_are_pooled_beside_the_class_token_where_asked(make_views: MakeViews) -> None:
    spec = TaskSpec(checkpoint="demo", pooling="both", raw=True)
    task = EmbeddingTask(spec, resolve_checkpoint("demo"))
    tokens = torch.zeros(1, 201, 48)
    tokens[0, 1:9] = 100  # storage tokens do not count
    tokens[0, 9::2, 0] = 2.0  # 96 of 192 patches
    views = make_views(task.view_spec, [(10, 20)])
    labels = task.decode(Outputs(Encoding(tokens, (16, 12)), None), views)
    assert list(labels.columns) == [
        "embedding", "embedding_raw", "embedding_patches", "embedding_patches_raw",
    ]  # fmt: skip
    np.testing.assert_allclose(labels.columns["embedding_patches_raw"][0, :2], [1, 0])
    np.testing.assert_allclose(labels.columns["embedding_patches"][0, :2], [1, 0])


def test_embeddings_are_stored_in_the_precision_asked_for(make_views: MakeViews) -> None:
    task = EmbeddingTask(
        TaskSpec(checkpoint="demo", dtype="float16", raw=True), resolve_checkpoint("demo")
    )
    tokens = torch.randn(2, 201, 48, generator=torch.Generator().manual_seed(0))
    tokens[1, 0, 0] = 1e6  # beyond float16
    labels = task.decode(
        Outputs(Encoding(tokens, (16, 12)), None), make_views(task.view_spec, [(30, 40)] * 2)
    )
    assert {column.dtype for column in task.schema.columns} == {"float16"}
    assert {str(values.dtype) for values in labels.columns.values()} == {"float16"}
    assert [problem is None for problem in labels.problems] == [True, False]
    plain = EmbeddingTask(TaskSpec(checkpoint="demo"), resolve_checkpoint("demo"))
    assert {column.dtype for column in plain.schema.columns} == {"float32"}
