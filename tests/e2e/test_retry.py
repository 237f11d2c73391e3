"""`retry` of what is not quarantined: refused with what is."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from sapiens_batch.cli import app
from sapiens_batch.errors import InputError
from tests.e2e.conftest import write_tar


@pytest.mark.usefixtures("ray_cluster")
def test_a_retry_of_nothing_that_is_quarantined_is_refused(
    tmp_path: Path, photos: dict[str, bytes]
) -> None:
    members = {"good.jpg": photos["cat"], "bad.jpg": b"<html>gone</html>"}
    spec = {
        "name": "retried",
        "source": {"format": "webdataset", "uri": str(write_tar(tmp_path / "in.tar", members))},
        "tasks": {"embedding": {"checkpoint": "demo"}},
        "output": {"uri": str(tmp_path / "labels")},
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(spec))
    assert CliRunner().invoke(app, ["run", str(path)]).exit_code == 0
    for asked, message in (
        (["--reason", "nonsense"], "reason 'nonsense'; there are decode.unknown_format 1"),
        (["--reason", "decode", "--key", "nokey"], "key 'nokey'; there are decode"),
    ):
        done = CliRunner().invoke(app, ["retry", str(path), *asked])
        assert isinstance(done.exception, InputError)
        assert done.exception.exit_code == 2
        assert message in str(done.exception)
