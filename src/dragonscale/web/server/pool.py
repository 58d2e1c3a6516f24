"""The workers: who answers what, and what becomes of one that takes too long, grows too large or dies.

A question waits until a worker is free for it. A worker is always kept free of slow work. Of free workers one that has
the record is asked, so that the next panel costs little. Where a worker has the record of a search already, what is
asked about it is no search any more and may begin at once. A curve that is searched behind a page gives way to what is
wanted now, and begins anew after it.
"""

import asyncio
import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.web.server import processes
from dragonscale.web.server.lanes import BEHIND, QUICK, SLOW
from dragonscale.web.server.settings import PageSettings
from dragonscale.web.server.turns import Crowded, Turn, TurnQueue, error_line
from dragonscale.workers import WAITS, Worker

TRIES = 3
"""Deaths before it was ever ready, after which a worker is given up."""
PAGE_SIZE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
TICK = 0.25
"""Seconds between two looks at what runs."""
JUST = 0.25
"""Seconds after which a question may be what its worker died of."""
HOPELESS = "The page's workers cannot be started on this machine; the terminal of the server may say why."
STOPPING = "The page's server is stopping."
DIED = "The process that worked on this question died; ask again, or ask for less."
TOO_LONG = (
    "This question took more than {:g} s and was stopped; give a plan or fewer chips, or ask it on the command line."
)
TOO_LARGE = "This question took more than {:.0f} GB of memory and was stopped; ask for less, or on the command line."
TOO_MUCH = "The answer is longer than {:.0f} MB; ask for fewer panels."


class PageWorker(Worker):
    """One worker of the page. It is also `killed` where another is to be started at once."""

    def __init__(self, pool: "WorkerPool", index: int) -> None:
        super().__init__(index, "dragonscale.web.server.worker")
        self.pool, self.slow = pool, False
        self.folder = os.path.join(pool.folder, str(index))
        self.turn: Turn | None = None
        self.used_at = 0.0
        self.keys: frozenset[str] = frozenset()
        """The records that it remembers, as it said itself."""
        self.deaths, self.was_ready = 0, False

    @property
    def hopeless(self) -> bool:
        """Whether it died again and again without having been ready once."""
        return self.deaths >= TRIES and not self.was_ready

    def surroundings(self) -> dict[str, Any]:
        os.makedirs(self.folder, exist_ok=True)
        # a session of its own: Ctrl-C in a terminal is the server's to hear, which then ends it
        variables = processes.environment(self.pool.settings, self.folder)
        return {"cwd": self.folder, "env": variables, "start_new_session": True}

    def order(self) -> bytes:
        settings = self.pool.settings
        hub = [str(folder) for folder in processes.hub_folders()] if settings.loopback else []
        profiles = [str(processes.config_folder() / "dragonscale" / "profiles")] if settings.loopback else []
        files = profiles + hub, hub if settings.hub else []
        start = processes.WorkerStart(self.folder, *files, settings.hub, settings.warm, settings.memory_bytes)
        return msgspec.json.encode(start)

    def heard(self, body: bytes) -> None:
        kind, payload = body[:1], body[1:]
        if kind == processes.MESSAGE:
            self.pool.heard(self, payload)
        elif kind == processes.ENDED:
            self.keys = msgspec.json.decode(payload, type=frozenset[str])
            self.pool.ended(self)
        elif kind == processes.READY and self.state == "starting":
            self.state, self.was_ready = "ready", True
            self.pool.became_ready()

    def died(self) -> float | None:
        was_ready = self.state in ("ready", "killed")
        self.state = "stopped" if self.state == "stopped" else "dead"
        self.keys = frozenset()
        self.pool.died(self)
        if was_ready:
            self.deaths, self.wait = 0, WAITS[0]
            return 0.0
        self.deaths += 1
        if self.hopeless:
            self.pool.changed.set()
            return None
        return self.longer()

    def begin(self, turn: Turn) -> None:
        """Send it a question."""
        self.turn, self.used_at = turn, time.monotonic()
        self.slow = turn.lane != QUICK and not (turn.remembered and turn.key in self.keys)
        self.send(processes.ASKED + turn.body)

    def drop(self) -> None:
        """Nobody waits for its answer any more."""
        self.send(processes.DROPPED)

    def free(self) -> Turn | None:
        """It has no question any more; which one it had."""
        turn, self.turn, self.slow = self.turn, None, False
        return turn

    def resident(self) -> int:
        """Bytes of memory that it has now, where the system tells."""
        try:
            pid = self.process.pid if self.process else 0
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_SIZE
        except (OSError, ValueError, IndexError):
            return 0

    def kill(self) -> None:
        """End it now; another one is started."""
        if self.state == "ready":
            self.state = "killed"
        if self.process is not None:
            self.process.kill()

    def stop(self) -> None:
        """End it for good."""
        self.state = "stopped"
        with contextlib.suppress(OSError):
            if self.process is not None:
                self.process.kill()


class WorkerPool:
    """Workers and the queue before them."""

    def __init__(self, settings: PageSettings) -> None:
        self.settings = settings
        self.folder = processes.private_folder()
        self.queue = TurnQueue(settings.waiting)
        self.workers = [PageWorker(self, index) for index in range(settings.workers)]
        self.changed, self.closing = asyncio.Event(), False
        self.answered = self.stopped = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the workers; they are ready later."""
        self._tasks = [asyncio.create_task(worker.run()) for worker in self.workers]
        self._tasks.append(asyncio.create_task(self._watch()))

    async def ready(self) -> bool:
        """Wait until all are ready; False where they cannot start."""
        while not all(worker.state == "ready" for worker in self.workers):
            if self.closing or any(worker.hopeless for worker in self.workers):
                return False
            self.changed.clear()
            await self.changed.wait()
        return True

    def submit(self, turn: Turn) -> None:
        """Queue a question, or refuse it."""
        if self.closing:
            raise Crowded(STOPPING)
        if all(worker.hopeless for worker in self.workers):
            raise Crowded(HOPELESS, 60)
        turn.remembered = (
            turn.lane != QUICK and bool(turn.key) and any(turn.key in worker.keys for worker in self.workers)
        )
        self.queue.put(turn)
        self.pump()

    def leave(self, turn: Turn) -> None:
        """Nobody waits for it any more."""
        if turn.over or turn.left_at is not None:
            return
        if self.queue.drop(turn):
            turn.end()
        else:
            turn.left_at = time.monotonic()
            turn.worker.drop()

    def pump(self) -> None:
        """Give waiting turns to free workers."""
        while True:
            free = [worker for worker in self.workers if worker.state == "ready" and worker.turn is None]
            turn = self.queue.next(lambda turn: bool(self._able(turn, free)))  # noqa: B023  used at once
            if turn is None:
                break
            able = self._able(turn, free)
            turn.worker = _best_for(turn, able)
            turn.worker.begin(turn)
        self._give_way()

    def _able(self, turn: Turn, free: list[PageWorker]) -> list[PageWorker]:
        """The free workers that may take a turn: after slow work another worker must be ready that is free of it."""
        without_slow = sum(worker.state == "ready" and not worker.slow for worker in self.workers)
        if turn.lane == QUICK or without_slow >= min(2, len(self.workers)):
            return free
        return [worker for worker in free if turn.remembered and turn.key in worker.keys]

    def _give_way(self) -> None:
        """Interrupt as many searches behind a page as questions wait for workers."""
        behind = [worker.turn for worker in self.workers if worker.turn is not None and worker.turn.lane == BEHIND]
        ending = sum(turn.gave_way_at is not None for turn in behind)
        for turn in behind:
            under_way = turn.left_at is None and turn.gave_way_at is None and not turn.over
            if under_way and self.queue.backlog(QUICK, SLOW) > ending:
                turn.gave_way_at = time.monotonic()
                turn.worker.drop()
                ending += 1

    def heard(self, worker: PageWorker, line: bytes) -> None:
        """A message of an answer."""
        turn = worker.turn
        if turn is None or turn.left_at is not None or turn.gave_way_at is not None:
            return
        if turn.bytes + len(line) > self.settings.answer_bytes:
            self._stop(worker, "limit", TOO_MUCH.format(self.settings.answer_bytes / 1e6))
        else:
            turn.hear(line)

    def ended(self, worker: PageWorker) -> None:
        """A worker has answered."""
        turn = worker.free()
        if turn is not None and not self._again(turn):
            self.answered += 1
            turn.end()
        self.pump()

    def died(self, worker: PageWorker) -> None:
        """A worker is gone; whoever waited for it is told, nobody else loses anything."""
        turn = worker.free()
        if turn is not None and not self._again(turn, died=True):
            if not turn.over:
                turn.hear(error_line("limit", STOPPING if self.closing else DIED))
            turn.end()
        self.changed.set()
        self.pump()

    def _again(self, turn: Turn, died: bool = False) -> bool:
        """Whether a turn is queued once more: one that gave way, or that had only just begun when its worker died."""
        if self.closing or turn.over or turn.left_at is not None:
            return False
        gave_way = turn.gave_way_at is not None
        just_begun = died and not turn.again and time.monotonic() - turn.begun <= JUST
        if not gave_way and not just_begun:
            return False
        # what gave way may do so again and again; what a worker died of is asked one more time
        turn.again, turn.gave_way_at = turn.again or not gave_way, None
        try:
            self.queue.put(turn)
        except Crowded as error:
            turn.hear(error_line("busy", str(error)))
            turn.end()
        return True

    def became_ready(self) -> None:
        """A worker takes questions from now on."""
        self.changed.set()
        self.pump()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            for worker in self.workers:
                if worker.turn is not None:
                    self._look(worker, worker.turn)

    def _look(self, worker: PageWorker, turn: Turn) -> None:
        """Stop what has passed a limit."""
        limits, now = self.settings, time.monotonic()
        max_s = limits.slow_s if worker.slow else limits.quick_s
        gone = turn.left_at if turn.left_at is not None else turn.gave_way_at
        if gone is not None:
            if now - gone > limits.grace_s:
                worker.kill()
        elif now - turn.begun > max_s:
            self._stop(worker, "limit", TOO_LONG.format(max_s))
        elif worker.resident() > limits.memory_bytes:
            self._stop(worker, "limit", TOO_LARGE.format(limits.memory_bytes / 1e9))
            worker.kill()

    def _stop(self, worker: PageWorker, kind: str, sentence: str) -> None:
        turn = worker.turn
        if turn is not None and not turn.over:
            self.stopped += 1
            turn.unread.clear()
            turn.hear(error_line(kind, sentence))
            turn.end()
            turn.left_at = time.monotonic()
            worker.drop()

    async def close(self) -> None:
        """End everything, whatever it does."""
        self.closing = True
        self.changed.set()
        for turn in self.queue.all_waiting():
            self.queue.drop(turn)
            turn.hear(error_line("limit", STOPPING))
            turn.end()
        for worker in self.workers:
            worker.stop()
        for task in self._tasks[: len(self.workers)]:
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await asyncio.wait_for(task, 5)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def stats(self) -> dict[str, object]:
        """How it is, for `/health`."""
        states = [worker.state for worker in self.workers]
        return {
            "ready": states.count("ready"),
            "workers": len(states),
            "busy": sum(worker.turn is not None for worker in self.workers),
            "waiting": self.queue.waiting,
            "answered": self.answered,
            "stopped": self.stopped,
            "restarts": sum(worker.restarts for worker in self.workers),
        }


def _best_for(turn: Turn, able: list[PageWorker]) -> PageWorker:
    """The worker to ask: one that has the record; for a slider's next position the one that was asked last, which has
    most of what the answer is made of; for a search the one idle for longest, which has least to forget."""
    knows = [worker for worker in able if turn.key and turn.key in worker.keys]
    if knows or turn.lane == QUICK:
        return max(knows or able, key=lambda worker: worker.used_at)
    return min(able, key=lambda worker: worker.used_at)
