"""The generated JSON Schemas are up to date."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import REPO


def test_schemas_are_what_the_code_says() -> None:
    script = REPO / "scripts" / "generate_schemas.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
