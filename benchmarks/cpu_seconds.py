"""CPU seconds of a command and of every process that it starts, those that died included.

The command runs in a control group of its own where one can be made (version 2 or 1, with the right
to make a folder below this process's group, as root in a container has): the kernel then counts
exactly. Elsewhere the tree of processes is looked at ten times a second in `/proc`, which misses
what a process does between the last look and its end; `exact` says which it was. `RUSAGE_CHILDREN`
would not do: a raylet ignores SIGCHLD, and children that nobody waits for are not in it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

GROUP_ROOTS = (
    ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"),
    ("/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/cpu,cpuacct"),
)
"""Where control groups of version 2 and of version 1 usually are."""

COUNTERS = ("cpu.stat", "cpuacct.usage")
LOOK_EVERY_S = 0.1
END_TIMEOUT_S = 60.0
"""In which all processes of a command that ended must have ended too."""


@dataclass(frozen=True, slots=True)
class Used:
    """What a command cost.

    Attributes:
        cpu_s: User and system seconds of all processes.
        wall_s: Seconds from start to end.
        exact: Whether the kernel counted, not we.
        output: What it printed.
    """

    cpu_s: float
    wall_s: float
    exact: bool
    output: str


def run(command: Sequence[str]) -> Used:
    """Run a command to its end.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    with _own_group() as group:
        started = time.monotonic()
        if group is None:
            cpu_s, output = _looked_at(command)
        else:
            # the shell joins before it becomes the command, so that nothing is missed
            join = f'echo $$ > "{group}/cgroup.procs" && exec "$@"'
            output = _output(subprocess.Popen(["sh", "-c", join, "sh", *command], **_PIPED))
            _wait_until_empty(group)
            cpu_s = _group_seconds(group)
        return Used(cpu_s, time.monotonic() - started, group is not None, output)


_PIPED = {"stdout": subprocess.PIPE, "text": True}


def _output(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args, output)
    return output


@contextlib.contextmanager
def _own_group() -> Iterator[Path | None]:
    """A new control group that counts CPU time, or None where none can be made."""
    for group in _candidates():
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            yield group
        finally:
            _remove(group)
        return
    yield None


def _remove(group: Path) -> None:
    """Take a group away, with what is left in it when we were interrupted."""
    deadline = time.monotonic() + END_TIMEOUT_S
    while True:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            group.rmdir()
        except OSError:  # busy while the kernel takes down who ended
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_EVERY_S)
        else:
            return


def _candidates() -> Iterator[Path]:
    """Folders below this process's groups that would count, of version 2 first."""
    name = f"benchmark-{uuid.uuid4().hex}"
    for line in reversed(Path("/proc/self/cgroup").read_text().splitlines()):
        _, controllers, path = line.split(":", 2)
        if controllers and "cpuacct" not in controllers.split(","):
            continue
        for parent in (Path(f"{root}{path}") for root in GROUP_ROOTS[bool(controllers)]):
            if any((parent / file).exists() for file in COUNTERS):
                yield parent / name


def _group_seconds(group: Path) -> float:
    usage = group / "cpuacct.usage"
    if usage.exists():
        return int(usage.read_text()) / 1e9
    values = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return int(values["usage_usec"]) / 1e6


def _wait_until_empty(group: Path) -> None:
    deadline = time.monotonic() + END_TIMEOUT_S
    while left := (group / "cgroup.procs").read_text().split():
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {', '.join(left)} outlive the command that began them")
        time.sleep(LOOK_EVERY_S)


def _looked_at(command: Sequence[str]) -> tuple[float, str]:
    process = subprocess.Popen(command, **_PIPED)
    seconds: dict[tuple[int, int], float] = {}
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_EVERY_S):
            _look(process.pid, seconds)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        output = _output(process)
    finally:
        ended.set()
        looking.join()
    return sum(seconds.values()), output


def _look(root: int, seconds: dict[tuple[int, int], float]) -> None:
    """Note what each process below `root` has used, by pid and start.

    Whoever was seen once stays in, so that children of one whose parent ended do too.
    """
    tick = os.sysconf("SC_CLK_TCK")
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            used = (int(fields[11]) + int(fields[12])) / tick
            found[int(path.parent.name)] = (int(fields[1]), int(fields[19]), used)
    members = {root, *(pid for pid, started in seconds if found.get(pid, (0, 0, 0))[1] == started)}
    while more := {pid for pid, one in found.items() if one[0] in members} - members:
        members |= more
    for pid in members & found.keys():
        _, started, used = found[pid]
        seconds[pid, started] = used
