"""A worker as the pool sees it: its process, the socket to it, the question that it has; started again
where it dies."""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dragonscale.web.server.lanes import SLOW
from dragonscale.web.server.settings import PageSettings
from dragonscale.web.server.turns import Turn
from dragonscale.web.server.wire import ASKED, DROPPED, ENDED, MESSAGE, READY, WorkerStart
from dragonscale.workers import WAITS, Worker

if TYPE_CHECKING:
    from dragonscale.web.server.pool import WorkerPool

TRIES = 3
"""Deaths before it was ever ready, after which a worker is given up."""
PREFIX = "dragonscale-"
PAGE_SIZE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


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
        variables = environment(self.pool.settings, self.folder)
        return {"cwd": self.folder, "env": variables, "start_new_session": True}

    def order(self) -> bytes:
        settings = self.pool.settings
        hub = [str(folder) for folder in hub_folders()] if settings.loopback else []
        own = [str(config_folder() / "dragonscale" / "profiles")] if settings.loopback else []
        readable, writable = own + hub, hub if settings.hub else []
        start = WorkerStart(self.folder, readable, writable, settings.hub, settings.warm, settings.memory_bytes)
        return msgspec.json.encode(start)

    def heard(self, body: bytes) -> None:
        kind, payload = body[:1], body[1:]
        if kind == MESSAGE:
            self.pool.heard(self, payload)
        elif kind == ENDED:
            self.keys = msgspec.json.decode(payload, type=frozenset[str])
            self.pool.ended(self)
        elif kind == READY and self.state == "starting":
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
        self.slow = turn.lane == SLOW and not (turn.remembered and turn.key in self.keys)
        self.send(ASKED + turn.body)

    def drop(self) -> None:
        """Nobody waits for its answer any more."""
        self.send(DROPPED)

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


def environment(settings: PageSettings, folder: str) -> dict[str, str]:
    """The variables of a worker: few, with a private folder for whatever looks for a place."""
    kept = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV", "SYSTEMROOT", "LD_LIBRARY_PATH", "TZ")
    if settings.hub:
        kept += (
            "HTTPS_PROXY",
            "https_proxy",
            "HTTP_PROXY",
            "http_proxy",
            "NO_PROXY",
            "no_proxy",
            "HF_ENDPOINT",
            "HF_TOKEN",
        )
    found = {name: os.environ[name] for name in kept if name in os.environ}
    if "PYTHONPATH" in found:  # the worker stands elsewhere
        found["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, found["PYTHONPATH"].split(os.pathsep)))
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    homes = dict.fromkeys(("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), folder)
    found |= threads | homes | {"PYTHONUNBUFFERED": "1"}
    if settings.loopback:
        cache, home = hub_folders()
        found |= {"XDG_CONFIG_HOME": str(config_folder()), "HF_HUB_CACHE": str(cache), "HF_HOME": str(home)}
    found |= {"HF_HUB_DISABLE_TELEMETRY": "1"} if settings.hub else {"HF_HUB_OFFLINE": "1"}
    return found


def private_folder(what: str = "web") -> str:
    """An empty folder of this process; those that processes left behind that were killed are removed."""
    root = Path(tempfile.gettempdir())
    for old in root.glob(f"{PREFIX}{what}-*"):
        pid = old.name.removeprefix(f"{PREFIX}{what}-").partition("-")[0]
        if pid.isdigit() and not _lives(int(pid)):
            shutil.rmtree(old, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{PREFIX}{what}-{os.getpid()}-")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return True


def hub_folders() -> tuple[Path, Path]:
    """Where the user's cache of the Hub is, and what else its package keeps, such as a login."""
    from dragonscale.models.hub import cache_folder

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache_folder(), Path(os.environ.get("HF_HOME") or cache / "huggingface").expanduser()


def config_folder() -> Path:
    """Where the user's own settings are; calibrated profiles lie there, and the command line takes them too."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def tell(line: str) -> None:
    """A line for whoever runs the server."""
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)
