"""A large shard is read by several tasks, and its labels are those of a shard that was not cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sapiens_batch.driver.sizing import SPAN_BYTES, cut_spans
from sapiens_batch.protocol.manifest import Manifest
from tests.chaos.jobs import Place, check_whole, dataset, make_job, run_here
from tests.chaos.matrix import Arena
from tests.cluster import NUM_CPUS
from tests.synthetic import plain_image, write_shard

NUM_SAMPLES = 15


def test_a_cut_shard_whose_readers_die_gives_what_a_whole_one_gives(
    arena: Arena, tmp_path: Path
) -> None:
    # large beyond the end of each image, where decoders do not look
    images = {
        f"{i:02}": plain_image((i, i, i)) + bytes(SPAN_BYTES // 5) for i in range(NUM_SAMPLES)
    }
    (tmp_path / "in").mkdir()
    write_shard(tmp_path / "in" / "000.tar", images)
    place = Place(str(tmp_path / "in"), str(tmp_path / "whole"))
    whole = make_job(place, runtime={"prepare_tasks": 1})
    cut = make_job(replace(place, output=str(tmp_path / "cut")))
    todo = Manifest.open(cut.store).todo()
    assert len(cut_spans(todo, NUM_CPUS, cut.chunk_samples)) == 3
    assert run_here(whole).exit_code == 0
    arena.cluster.arm("prepare", "kill")
    assert run_here(cut).exit_code == 0
    assert arena.cluster.has_fired("prepare")
    check_whole(cut, dataset(whole))
