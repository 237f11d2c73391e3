"""The contract suite that every source passes: subclass it and provide a small corpus."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest

from sapiens_batch.errors import InputError
from sapiens_batch.records import Sample, Shard
from sapiens_batch.sources import make_source
from sapiens_batch.sources.base import Source
from sapiens_batch.sources.chunks import iter_chunks
from sapiens_batch.spec.job import SourceSpec


def samples_of(source: Source, shard: Shard) -> list[Sample]:
    return [item for item in source.read(shard) if isinstance(item, Sample)]


def facts(sample: Sample) -> tuple[object, ...]:
    boxes = None if sample.boxes is None else sample.boxes.tolist()
    return sample.key, sample.index, sample.encoded, boxes, dict(sample.extra), sample.problem


class SourceContract:
    """Tests of what every source must do, over a corpus that the subclass writes."""

    SHARD_KEYS: tuple[str, ...]
    """Keys of the shards of the corpus; at least two."""

    SAMPLE_KEYS: tuple[tuple[str, ...], ...]
    """Keys of the samples of each shard."""

    def write_corpus(self, folder: Path) -> None:
        """Write the corpus into a new folder."""
        raise NotImplementedError

    def spec(self, folder: Path) -> SourceSpec:
        """The source section that reads the corpus in `folder`."""
        raise NotImplementedError

    @pytest.fixture
    def corpus(self, tmp_path: Path) -> Path:
        folder = tmp_path / "corpus"
        folder.mkdir()
        self.write_corpus(folder)
        return folder

    @pytest.fixture
    def source(self, corpus: Path) -> Source:
        return make_source(self.spec(corpus))

    def test_plans_the_same_shards_every_time(self, source: Source) -> None:
        shards = list(source.plan())
        assert tuple(shard.key for shard in shards) == self.SHARD_KEYS
        assert list(source.plan()) == shards

    def test_gives_every_shard_an_id_of_32_hex_digits_of_its_own(self, source: Source) -> None:
        ids = [shard.shard_id for shard in source.plan()]
        assert len(set(ids)) == len(self.SHARD_KEYS)
        assert all(len(shard_id) == 32 and int(shard_id, 16) >= 0 for shard_id in ids)

    def test_ids_survive_a_move_of_the_whole_corpus(self, corpus: Path, source: Source) -> None:
        before = [shard.shard_id for shard in source.plan()]
        moved = corpus.parent / "elsewhere" / "deep"
        shutil.copytree(corpus, moved)
        assert [shard.shard_id for shard in make_source(self.spec(moved)).plan()] == before

    def test_uris_are_absolute(
        self, corpus: Path, source: Source, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        expected = [shard.uri for shard in source.plan()]
        monkeypatch.chdir(corpus.parent)
        relative = make_source(self.spec(Path("corpus")))
        assert [shard.uri for shard in relative.plan()] == expected
        assert all(Path(uri).is_absolute() for uri in expected)

    def test_keeps_the_samples_own_keys_and_counts_from_0(self, source: Source) -> None:
        for shard, keys in zip(source.plan(), self.SAMPLE_KEYS, strict=True):
            samples = samples_of(source, shard)
            assert tuple(sample.key for sample in samples) == keys
            assert [sample.index for sample in samples] == list(range(len(keys)))

    def test_reads_the_same_samples_again_after_pickling(self, source: Source) -> None:
        again = pickle.loads(pickle.dumps(source))
        for shard in source.plan():
            once = [facts(sample) for sample in samples_of(source, shard)]
            assert [facts(sample) for sample in samples_of(again, shard)] == once

    def test_a_sample_has_bytes_or_a_problem(self, source: Source) -> None:
        for shard in source.plan():
            for sample in samples_of(source, shard):
                assert (sample.encoded is None) == (sample.problem is not None)

    def test_limit_takes_the_first_shards(self, corpus: Path) -> None:
        spec = self.spec(corpus).model_copy(update={"limit": 1})
        assert [shard.key for shard in make_source(spec).plan()] == list(self.SHARD_KEYS[:1])

    @pytest.mark.parametrize("chunk_samples", [1, 2, 3, 100])
    def test_chunks_tile_the_shard(self, source: Source, chunk_samples: int) -> None:
        for shard in source.plan():
            chunks = list(iter_chunks(source, shard, chunk_samples))
            assert [chunk.start for chunk in chunks] == [0, *[chunk.stop for chunk in chunks[:-1]]]
            assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
            joined = [facts(sample) for chunk in chunks for sample in chunk.samples]
            assert joined == [facts(sample) for sample in samples_of(source, shard)]

    def test_missing_corpus_is_an_input_error_that_names_it(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="nowhere"):
            list(make_source(self.spec(tmp_path / "nowhere")).plan())
