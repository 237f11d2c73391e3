"""Unit normals from raw maps."""

from __future__ import annotations

import numpy as np
import torch

from sapiens_batch.tasks.normal import unit_vectors
from tests.conformance.task_contract import TaskContract


class TestNormalTask(TaskContract):
    name = "normal"


def test_vectors_get_unit_length_and_no_direction_becomes_nan() -> None:
    raw = torch.zeros(3, 1, 3)
    raw[:, 0, 0] = torch.tensor([0.0, 3.0, 4.0])
    raw[:, 0, 1] = torch.tensor([-2e-3, 0.0, 0.0])
    units = unit_vectors(raw).numpy()
    np.testing.assert_allclose(units[:, 0, 0], [0, 0.6, 0.8], atol=1e-7)
    np.testing.assert_allclose(units[:, 0, 1], [-1, 0, 0], atol=1e-7)
    assert np.isnan(units[:, 0, 2]).all()
