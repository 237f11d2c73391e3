"""GPUs that join are used, a job waits for the first one, and a node that leaves costs little."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sapiens_batch.failpoints import FAULTS_VARIABLE
from tests.chaos.elastic import SCENARIOS

TIMEOUT_S = 300.0
REPO = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_job_follows_its_cluster(scenario: str, tmp_path: Path) -> None:
    unset = (FAULTS_VARIABLE, "RAY_ADDRESS")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    command = [sys.executable, "-m", "tests.chaos.elastic", scenario, str(tmp_path)]
    subprocess.run(command, cwd=REPO, env=environment, check=True, timeout=TIMEOUT_S)
