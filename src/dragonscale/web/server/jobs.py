"""Jobs: questions that take a compiler and most of a minute (`verify`), each in a process of its own.

A job is begun by one request and heard by others, so that a page may be reloaded while it runs. Few run at a time,
because a compiler takes every core and gigabytes; few wait; results are kept for a while. The name of a job is random:
whoever has it may hear and cancel it. A job that is cancelled is killed with all its children, which share its process
group.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from dragonscale.errors import unknown
from dragonscale.web.server.gate import Refusal
from dragonscale.web.server.pool import STOPPING
from dragonscale.web.server.processes import JOBS, absolute_path, private_folder
from dragonscale.web.server.settings import PageSettings
from dragonscale.web.server.turns import Crowded, error_line

TICK = 1.0
"""Seconds between two words to whoever hears a job that says nothing."""
MARGIN = 30.0
"""Seconds beyond the compiler's own limit, after which the whole job is ended."""
LONGEST = 16 << 20
MOST_SAID = 10_000
LOGINS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH")


class PageJob:
    """One job: its request, what it has said, and its process while it runs."""

    def __init__(self, id: str, order: dict[str, Any]) -> None:
        self.id, self.order = id, order
        self.state = "waiting"  # or running, over
        self.said: list[bytes] = []
        self.begun = self.ended = 0.0
        self.changed = asyncio.Event()
        self.process: asyncio.subprocess.Process | None = None

    def say(self, line: bytes) -> None:
        """A message for whoever hears it."""
        if len(self.said) >= MOST_SAID:
            raise ValueError("too many messages")
        self.said.append(line)
        self._wake()

    def end(self, line: bytes = b"") -> None:
        """It is over; `line` is its last message where it said none."""
        if self.state != "over":
            self.state, self.ended = "over", time.monotonic()
            if line:
                self.said.append(line)
        self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    async def lines(self) -> AsyncIterator[bytes]:
        """Everything it says from its begin to its end, with how long it runs in between."""
        read = 0
        while True:
            while read < len(self.said):
                read += 1
                yield self.said[read - 1]
            if self.state == "over":
                return
            changed = self.changed
            try:
                await asyncio.wait_for(changed.wait(), TICK)
            except TimeoutError:
                elapsed = time.monotonic() - self.begun if self.begun else 0.0
                yield msgspec.json.encode({"state": self.state, "elapsed": round(elapsed, 1)}) + b"\n"

    def kill(self) -> None:
        """End its process with all its children."""
        if (
            self.process is not None
        ):  # also where it is dead itself: its group has the compiler, and no other gets the number
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)


class JobDesk:
    """The jobs of a server."""

    def __init__(self, settings: PageSettings) -> None:
        self.settings = settings
        self.jobs: dict[str, PageJob] = {}
        self.waiting: deque[PageJob] = deque()
        self.running: dict[str, asyncio.Task[None]] = {}

    def begin(self, request: Mapping[str, Any]) -> str:
        """Queue a job; its id."""
        job = PageJob(secrets.token_urlsafe(16), self._order(request))
        if len(self.waiting) >= self.settings.jobs_waiting:
            raise Crowded(f"{len(self.waiting)} jobs wait already; try again in a minute.", 60)
        self._forget()
        self.jobs[job.id] = job
        self.waiting.append(job)
        self._pump()
        return job.id

    def _order(self, request: Mapping[str, Any]) -> dict[str, Any]:
        kind, fields, dropped = request.get("kind"), request.get("fields", {}), request.get("dropped", {})
        if kind not in JOBS:
            raise Refusal(400, str(unknown("kind of job", kind, JOBS)), "input")
        texts = isinstance(dropped, dict) and all(isinstance(text, str) for text in dropped.values())
        if not isinstance(fields, dict) or not texts:
            raise Refusal(400, "A job has `fields` and `dropped`, objects.", "input")
        limits = self.settings
        bounds = {"timeout": f"{limits.job_s:g}s", "memory": limits.job_memory, "loopback": limits.loopback}
        return {"kind": kind, "fields": fields, "dropped": dropped, **bounds}

    def cancel(self, job: PageJob, kind: str = "cancelled", sentence: str = "The job was cancelled.") -> None:
        """End a job, wherever it is."""
        if job in self.waiting:
            self.waiting.remove(job)
        job.end(error_line(kind, sentence))
        job.kill()

    def _pump(self) -> None:
        while self.waiting and len(self.running) < self.settings.jobs:
            job = self.waiting.popleft()
            self.running[job.id] = asyncio.get_running_loop().create_task(self._run(job))

    async def _run(self, job: PageJob) -> None:
        folder = private_folder("job")
        try:
            job.state, job.begun = "running", time.monotonic()
            async with asyncio.timeout(self.settings.job_s + MARGIN):
                await self._hear(job, folder)
        except TimeoutError:
            job.end(error_line("limit", f"The job took more than {self.settings.job_s:g} s and was stopped."))
        except ValueError:
            job.end(error_line("limit", f"The job's result is longer than {LONGEST / 1e6:.0f} MB."))
        except OSError as error:
            job.end(error_line("limit", f"The job's process cannot be started: {error.strerror or error}."))
        finally:
            job.kill()
            if job.process is not None:
                with contextlib.suppress(Exception):
                    await job.process.wait()
            job.end(error_line("limit", "The job's process died; it may have taken too much memory."))
            shutil.rmtree(folder, ignore_errors=True)
            self.running.pop(job.id, None)
            self._pump()

    async def _hear(self, job: PageJob, folder: str) -> None:
        command, pipe = (sys.executable, "-m", "dragonscale.web.server.job"), asyncio.subprocess.PIPE
        how: Any = {"cwd": folder, "env": job_environment(self.settings, folder), "start_new_session": True}
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=LONGEST, **how)
        job.process = process
        assert process.stdin is not None
        assert process.stdout is not None
        if job.state == "over":  # cancelled while it was started
            return
        process.stdin.write(msgspec.json.encode(job.order) + b"\n")  # and kept open: its end ends the job
        async for line in process.stdout:
            if job.state == "over":
                return
            if line.startswith((b'{"done"', b'{"error"')):
                job.end(line)
                return
            job.say(line)

    def _forget(self) -> None:
        """Drop results that are old, and the oldest of too many."""
        over = sorted((job for job in self.jobs.values() if job.state == "over"), key=lambda job: job.ended)
        until = time.monotonic() - self.settings.job_kept_s
        many = max(len(over) - self.settings.jobs_kept, 0)
        for index, job in enumerate(over):
            if index < many or job.ended < until:
                del self.jobs[job.id]

    def stats(self) -> dict[str, int]:
        """How many wait and run."""
        return {"running": len(self.running), "waiting": len(self.waiting)}

    async def close(self) -> None:
        """End every job."""
        for job in self.jobs.values():
            self.cancel(job, "limit", STOPPING)
        await asyncio.gather(*self.running.values(), return_exceptions=True)


def job_environment(settings: PageSettings, folder: str) -> dict[str, str]:
    """The variables of a job: those of the server, which compilers need, but where workers may not ask the Hub, jobs
    may not either, and nothing of the owner's login is there."""
    variables = absolute_path({**os.environ, "TMPDIR": folder})
    if not settings.hub:
        variables = {name: value for name, value in variables.items() if name not in LOGINS} | {"HF_HUB_OFFLINE": "1"}
    if not settings.loopback:
        variables |= dict.fromkeys(("HF_HOME", "HF_HUB_CACHE", "XDG_CONFIG_HOME"), folder)
    return variables
