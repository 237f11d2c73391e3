"""Reading labels and refusing a bad job file are quick because they import little."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOAD = "from sapiens_batch.labeler import Labeler; Labeler.load({'pose': 'demo'}, device='cpu')"


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("from sapiens_batch.labelset import open_labels", {"ray", "torch", "cv2"}),
        ("import sapiens_batch.search", {"ray", "torch", "faiss", "jinja2"}),
        ("import sapiens_batch.curate", {"ray", "torch", "faiss", "duckdb"}),
        ("import sapiens_batch.cli", {"ray", "torch", "pyarrow", "zarr"}),
        ("import sapiens_batch.stages.label, sapiens_batch.stages.source", {"torch"}),
        ("import sapiens_batch.stages.preparer", {"torch", "ray"}),
        ("import sapiens_batch.stages.read_apart", {"torch", "ray"}),
        ("import sapiens_batch.driver.run", {"ray"}),
        ("import sapiens_batch.driver.open_job", {"ray"}),
        ("import sapiens_batch.labeler", {"ray", "fsspec"}),
        (LOAD, {"ray", "transformers", "torch._dynamo"}),
    ],
)
def test_a_light_module_leaves_heavy_ones_alone(statement: str, absent: set[str]) -> None:
    assert not absent & modules_after(statement)
