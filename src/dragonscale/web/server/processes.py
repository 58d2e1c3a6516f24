"""What surrounds the processes of the page's server: their variables, folders of their own, and what they say.

Over the socket of `dragonscale.workers` go a letter and JSON. A worker is sent what it is started with (`WorkerStart`),
then questions and that nobody waits for the present one; it sends that it is ready, each message of an answer, and at
its end the names of the records that it remembers.
"""

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec

from dragonscale.web.server.settings import PageSettings

JOBS = {"verify": "verify"}
"""What can be a job, and its command."""
ASKED, DROPPED = b"a", b"d"
READY, MESSAGE, ENDED = b"r", b"m", b"e"


class WorkerStart(msgspec.Struct):
    """What a worker is started with: the folder it stands in, files it may read and write besides, whether it may use
    the network, whether it answers a question or two before it counts as ready, and how large it may grow."""

    folder: str
    readable: list[str]
    writable: list[str]
    network: bool
    warm: bool
    memory_bytes: int


PREFIX = "dragonscale-"


def environment(settings: PageSettings, folder: str) -> dict[str, str]:
    """The variables of a worker: few, with a private folder for whatever looks for a place."""
    names = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV", "SYSTEMROOT", "LD_LIBRARY_PATH", "TZ")
    if settings.hub:
        proxies = ("https_proxy", "http_proxy", "no_proxy")
        names += (*proxies, *map(str.upper, proxies), "HF_ENDPOINT", "HF_TOKEN")
    variables = absolute_path({name: os.environ[name] for name in names if name in os.environ})
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    homes = dict.fromkeys(("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), folder)
    variables |= threads | homes | {"PYTHONUNBUFFERED": "1"}
    if settings.loopback:
        cache, home = hub_folders()
        variables |= {"XDG_CONFIG_HOME": str(config_folder()), "HF_HUB_CACHE": str(cache), "HF_HOME": str(home)}
    variables |= {"HF_HUB_DISABLE_TELEMETRY": "1"} if settings.hub else {"HF_HUB_OFFLINE": "1"}
    return variables


def absolute_path(variables: dict[str, str]) -> dict[str, str]:
    """Variables whose PYTHONPATH means the same folders from anywhere: processes stand in folders of their own."""
    folders = [os.path.abspath(folder) for folder in variables.get("PYTHONPATH", "").split(os.pathsep)]
    return variables | ({"PYTHONPATH": os.pathsep.join(folders)} if "PYTHONPATH" in variables else {})


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
