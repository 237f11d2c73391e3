"""A process that may die or hang: whoever asks gets an answer or learns what became of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sapiens_batch.child.child import Child, DiedError, TimedOutError
from sapiens_batch.child.memory import MemoryFile
from sapiens_batch.errors import WeightsError
from tests.child.answering import start_answering


@pytest.fixture(scope="module")
def shared() -> Iterator[Child[Any, Any]]:
    child = Child(start_answering)
    yield child
    child.close()


def is_running(pid: int | None) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def assert_ends(pid: int | None) -> None:
    deadline = time.monotonic() + 10
    while is_running(pid):
        assert time.monotonic() < deadline, "it is still running"
        time.sleep(0.02)


def test_messages_are_answered_one_after_the_other_by_one_process(shared: Child[Any, Any]) -> None:
    before = shared.ask("count", timeout_s=60)
    assert shared.ask("count", timeout_s=60) == before + 1
    assert list(shared.ask_each(("echo", 1, "two", None), timeout_s=60)) == [1, "two", None]
    assert list(shared.ask_each(("echo",), timeout_s=60)) == []


def test_large_messages_go_both_ways(shared: Child[Any, Any]) -> None:
    array = np.arange(3_000_000)
    np.testing.assert_array_equal(shared.ask(("echo", array), timeout_s=60), array)


def test_what_libraries_print_does_not_get_between_the_answers(shared: Child[Any, Any]) -> None:
    assert shared.ask("print", timeout_s=60) == "printed"


def test_a_death_is_told_after_the_answers_before_it_and_the_next_process_is_a_fresh_one() -> None:
    child: Child[Any, Any] = Child(start_answering)
    answers = child.ask_each(("exit after", 1, 2), timeout_s=60)
    assert (next(answers), next(answers)) == (1, 2)
    with pytest.raises(DiedError, match="exit status 7"):
        next(answers)
    assert child.pid is None
    assert child.ask("count", timeout_s=60) == 1
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(DiedError, match="SIGKILL"):
        child.ask("count", timeout_s=60)
    child.close()


def test_an_exception_that_nobody_foresaw_ends_the_process() -> None:
    child: Child[Any, Any] = Child(start_answering)
    with pytest.raises(DiedError, match="exit status 1"):
        child.ask("raise", timeout_s=60)


def test_a_hang_is_ended_in_time_and_told_after_the_answers_before_it() -> None:
    child: Child[Any, Any] = Child(start_answering)
    answers = child.ask_each(("hang after", 1), timeout_s=0.5)
    assert next(answers) == 1
    pid, started = child.pid, time.monotonic()
    with pytest.raises(TimedOutError):
        next(answers)
    assert time.monotonic() - started < 5
    assert not is_running(pid)


def test_every_answer_has_its_own_time() -> None:
    child: Child[Any, Any] = Child(start_answering)
    assert list(child.ask_each(("slowly", 5, 0.3), timeout_s=1.2)) == [0, 1, 2, 3, 4]
    child.close()


def test_who_does_not_take_all_answers_is_not_given_old_ones() -> None:
    child: Child[Any, Any] = Child(start_answering)
    answers = child.ask_each(("echo", 1, 2, 3), timeout_s=60)
    assert next(answers) == 1
    pid = child.pid
    answers.close()
    assert not is_running(pid)
    assert child.ask("count", timeout_s=60) == 1
    child.close()


def test_an_error_of_ours_while_starting_is_raised_as_it_is() -> None:
    with pytest.raises(WeightsError, match="torn"):
        Child(partial(start_answering, "refuse")).ask("count", timeout_s=60)


@pytest.mark.parametrize(
    ("first", "why"), [("exit", "exit status 3"), ("hang", "no answer after 3 s")]
)
def test_a_process_that_does_not_start_is_named(first: str, why: str) -> None:
    child = Child(partial(start_answering, first), start_timeout_s=3)
    with pytest.raises(RuntimeError, match=rf"child \d+ tests\.child\.answering.*{why}"):
        child.ask("count", timeout_s=60)


@pytest.mark.parametrize("message", ["nothing", "spin", ("hang after",)])
def test_it_ends_with_the_process_that_asks_whatever_it_is_doing(message: object) -> None:
    script = (
        "import os, threading, time\n"
        "from sapiens_batch.child.child import Child\n"
        "from tests.child.answering import start_answering\n"
        "child = Child(start_answering)\n"
        "child.ask('count', timeout_s=None)\n"
        f"ask = lambda: list(child.ask_each({message!r}, timeout_s=None))\n"
        "threading.Thread(target=ask, daemon=True).start()\n"
        "time.sleep(0.5)\n"
        "print(child.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=False)
    assert_ends(int(ended.stdout))


def test_it_ends_with_the_object_that_asks() -> None:
    child: Child[Any, Any] = Child(start_answering)
    child.ask("count", timeout_s=60)
    pid = child.pid
    del child
    assert not is_running(pid)


def test_a_memory_file_shows_both_sides_the_same_bytes_and_grows() -> None:
    ours = MemoryFile()
    theirs = MemoryFile(os.dup(ours.descriptor))
    ours.array(0, (2, 3))[:] = [[1, 2, 3], [4, 5, 6]]
    early = theirs.array(1, (4,))
    theirs.array(20_000_000, (1,))[:] = 9
    assert early.tolist() == [2, 3, 4, 5]
    assert ours.array(20_000_000, (1,)).tolist() == [9]
    ours.trim(kept_bytes=2**30)
    assert early.tolist() == [2, 3, 4, 5]
    ours.close()
    theirs.close()


@pytest.mark.skipif(sys.platform != "linux", reason="memory cannot be given back elsewhere")
def test_a_memory_file_gives_memory_back_and_can_be_used_again() -> None:
    memory = MemoryFile()
    memory.array(0, (30_000_000,))[:] = 1
    memory.trim(kept_bytes=2**20)
    assert os.fstat(memory.descriptor).st_blocks == 0
    array = memory.array(0, (30_000_000,))
    array[-1] = 7
    assert array[-2:].tolist() == [0, 7]
    memory.close()
