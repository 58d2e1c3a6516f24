"""Who answers the entries of a sweep: the same functions that the commands call, with a reason in place of every
failure, in processes of this machine or on a Ray cluster.

`python -m dragonscale.commands.sweep.workers` answers entries as they come, a line of JSON each, until its input ends.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any

import msgspec

from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.questions.verify import VerifyQuestion
from dragonscale.commands.serve import answer as serve
from dragonscale.commands.serve.serve_question import read_question as read_serving
from dragonscale.commands.simulate.ask_simulate import run_simulation
from dragonscale.commands.simulate.simulate_question import read_question as read_simulating
from dragonscale.commands.sweep.sweep_records import Entry, SweepAnswer
from dragonscale.commands.train import ask_train as train
from dragonscale.commands.verify.verify_question import read_question as read_verifying
from dragonscale.errors import InputError
from dragonscale.evidence.verify import comparing
from dragonscale.installing import install_hint
from dragonscale.listener import without_numeric_warnings


class Task(msgspec.Struct, frozen=True):
    """An entry on its way to a process; `cached` says whether what was compiled before may be used."""

    entry: Entry
    cached: bool = True


def answer_entry(entry: Entry, cached: bool = True) -> SweepAnswer:
    """What the entry's command would print as JSON, or why it cannot."""
    start, failed, record = time.monotonic(), "", None
    try:
        answers = {"verify": _verify, "train": _train, "serve": _serve, "simulate": _simulate}
        with without_numeric_warnings():
            record = answers[entry.command](entry.asks, cached)
    except InputError as error:
        failed = str(error)
    except Exception as error:  # one bad entry must not end a sweep of hundreds
        failed = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
    answer = None
    if not failed:
        answer = msgspec.to_builtins(record)
    return SweepAnswer(entry.key, entry.command, entry.asks, time.monotonic() - start, failed, answer)


def _verify(asks: dict[str, Any], cached: bool) -> Any:
    understood = read_verifying(VerifyQuestion(**asks))
    return comparing.verify(understood.request, understood.timeout, understood.memory, cached)


def _train(asks: dict[str, Any], _: bool) -> Any:
    return train.answer(train.understood(TrainQuestion(**asks)))


def _serve(asks: dict[str, Any], _: bool) -> Any:
    return serve.answer(read_serving(ServeQuestion(**asks)), confirm=False)


def _simulate(asks: dict[str, Any], _: bool) -> Any:
    """The run itself; what would hold is looked for only where that is asked."""
    return run_simulation(read_simulating(SimulateQuestion(**{"max_rate": False, **asks})))[0]


def answer_bytes(task: bytes) -> bytes:
    """One task, as bytes both ways: nothing of ours has to be unpickled on the way."""
    read = msgspec.json.decode(task, type=Task)
    return msgspec.json.encode(answer_entry(read.entry, read.cached))


def main() -> None:
    """Answer tasks from stdin on stdout; what libraries print goes to stderr."""
    stdout = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(stdout, "wb") as out:
        for line in sys.stdin.buffer:
            out.write(answer_bytes(line) + b"\n")
            out.flush()


# Ctrl-C that is never lost.
#
# Python turns a signal into a `KeyboardInterrupt` wherever the main thread happens to be, and one that is raised inside
# a callback (a finalizer, a weak reference) is printed and forgotten. So the signal is also kept in a flag, which a
# long loop asks after every step. While the loop cleans up, further signals change nothing. SIGTERM, as schedulers send
# it, counts as Ctrl-C; a signal that the process was started to ignore (a background job of a script) stays ignored.


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Whether somebody has asked to stop."""

    def __init__(self) -> None:
        self.asked = self.terminated = False

    def ask(self, number: int, *_: Any) -> None:
        """Handle a signal: the first interrupts what is being done."""
        if not self.asked:
            self.asked = True
            self.terminated = number == signal.SIGTERM
            raise KeyboardInterrupt

    def check(self) -> None:
        """Stop here if the exception went astray."""
        if self.asked:
            raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Listen to the signals; outside the main thread, where Python hears none, nothing changes."""
    interrupt, before = Interrupt(), {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in SIGNALS}
        before = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, interrupt.ask)
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# Entries answered by several processes of this machine at once.
#
# Each process answers one entry after another. One that dies (the kernel may end it when memory runs out) costs its
# entry an answer and is replaced. All of them, and the compilers they started, end with the sweep: each is the leader
# of a group of its own, which Ctrl-C in the terminal does not reach and which is ended as a whole.


def cores() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def pooled(entries: Sequence[Entry], jobs: int, cached: bool = True) -> Generator[SweepAnswer]:
    """Answers in the order in which they are found."""
    workers = [_Worker() for _ in range(min(jobs, len(entries)))]
    idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def ask(entry: Entry) -> SweepAnswer:
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

    def ask(self, task: Task) -> SweepAnswer:
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
            return msgspec.json.decode(line, type=SweepAnswer)
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
    command = [sys.executable, "-m", "dragonscale.commands.sweep.workers"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)


def _lost(task: Task, reason: str) -> SweepAnswer:
    return SweepAnswer(task.entry.key, task.entry.command, task.entry.asks, 0.0, failed=reason)


# Entries answered on a Ray cluster, on whose machines this package is installed too.


def on_ray(entries: Sequence[Entry], address: str, cached: bool = True) -> Generator[SweepAnswer]:
    """Answers in the order in which they are found; `address` is the cluster's (`auto`, `local`,
    `ray://host:10001`)."""
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError(f"A sweep on a cluster needs Ray: {install_hint('ray')}") from None
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", ignore_reinit_error=True)
    except Exception as error:
        raise InputError(f"There is no Ray cluster at {address!r}: {' '.join(str(error).split())[:300]}") from None
    remote = ray.remote(num_cpus=1, max_retries=1)(answer_bytes)
    waiting = {remote.remote(msgspec.json.encode(Task(entry, cached))): entry for entry in entries}
    try:
        while waiting:
            (done, *_), _ = ray.wait(list(waiting), num_returns=1)
            yield _collected(ray, done, waiting.pop(done))
    finally:
        for reference in waiting:
            ray.cancel(reference, force=True)
        ray.shutdown()


def _collected(ray: Any, reference: Any, entry: Entry) -> SweepAnswer:
    try:
        return msgspec.json.decode(ray.get(reference), type=SweepAnswer)
    except Exception as error:
        reason = f"Ray lost it: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return SweepAnswer(entry.key, entry.command, entry.asks, 0.0, failed=reason)


if __name__ == "__main__":
    main()
