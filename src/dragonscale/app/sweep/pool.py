"""Entries answered by several processes of this machine at once.

Each process answers one entry after another. One that dies (the kernel may end it when memory runs out) costs its entry
an answer and is replaced. All of them, and the compilers they started, end with the sweep: each is the leader of a
group of its own, which Ctrl-C in the terminal does not reach and which is ended as a whole.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

import msgspec

from dragonscale.app.sweep.answer import Task
from dragonscale.app.sweep.records import Answer, Entry


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pooled(entries: Sequence[Entry], jobs: int, cached: bool = True) -> Generator[Answer]:
    """Answers in the order in which they are found."""
    workers = [_Worker() for _ in range(min(jobs, len(entries)))]
    idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def ask(entry: Entry) -> Answer:
        worker = idle.get()
        try:
            return worker.ask(Task(entry, cached))
        finally:
            idle.put(worker)

    threads = ThreadPoolExecutor(max(1, len(workers)))
    try:
        for done in as_completed([threads.submit(ask, entry) for entry in entries]):
            yield done.result()
    finally:
        for worker in workers:
            worker.stop()
        threads.shutdown(cancel_futures=True)
        for worker in workers:
            worker.close()


class _Worker:
    """A process that answers entries, started when it is first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def ask(self, task: Task) -> Answer:
        """The answer, or a row that says that the process ended over it."""
        if self._stopped:
            return _lost(task, "the sweep was stopped")
        if self._process is None:
            self._process = _started()
            if self._stopped:  # in the meantime
                self.stop()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(msgspec.json.encode(task) + b"\n")
            process.stdin.flush()
        line = process.stdout.readline()
        if line.endswith(b"\n"):
            return msgspec.json.decode(line, type=Answer)
        code = process.wait()
        self.close()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return _lost(task, f"The process that worked on it ended by itself ({how}); it may have run out of memory.")

    def stop(self) -> None:
        """End the process and everything it started."""
        self._stopped = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let go of a process that has ended."""
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()
            self._process.wait()
            self._process = None


def _started() -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "dragonscale.app.sweep.answer"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)


def _lost(task: Task, reason: str) -> Answer:
    return Answer(task.entry.key, task.entry.command, task.entry.asks, 0.0, failed=reason)
