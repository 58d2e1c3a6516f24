"""The planner inside a browser: what the static edition's worker calls (Pyodide; `tools/static_edition/` builds it).

The worker gives a request as JSON text and gets each message as JSON text, the same as the server sends. Two things are other
than on a server. Large packages that few questions need (SymPy, the random numbers of simulations, YAML) are not there at the
start: an import of one fetches it. And what runs programs (`verify`, `run`, `calibrate`) cannot be had at all: an import of
its parts is told as a sentence.

>>> messages = []
>>> answer_text('{"view": "chips", "fields": {"name": "h10"}}', messages.append)
>>> messages[-1][:47]
'{"error": {"kind": "input", "text": "There is n'
"""

import contextlib
import importlib
import io
import json
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from importlib.abc import MetaPathFinder
from pathlib import Path

from dragonscale.errors import InputError
from dragonscale.web.answers import Unwanted, answer

BREATH_S = 0.04
"""How long Python computes before it lets messages in."""


class LatePackages(MetaPathFinder):
    """Fetches an archive into `folder` when one of its packages is first imported; says in a sentence what cannot be had at all.

    `archives` has the archive of each package, `missing` the sentence.
    """

    def __init__(
        self, archives: Mapping[str, str], missing: Mapping[str, str], folder: Path, fetch: Callable[[str], bytes]
    ) -> None:
        self.archives, self.missing = dict(archives), dict(missing)
        self.folder, self.fetch = folder, fetch

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        """Nothing is found here: after the archive is unpacked, Python's own finder sees its files."""
        if fullname in self.missing:
            raise InputError(self.missing[fullname])
        archive = self.archives.get(fullname)
        if archive is not None:
            with zipfile.ZipFile(io.BytesIO(self._fetched(archive))) as opened:
                opened.extractall(self.folder)
            self.archives = {name: one for name, one in self.archives.items() if one != archive}
            importlib.invalidate_caches()

    def _fetched(self, archive: str) -> bytes:
        try:
            return bytes(self.fetch(archive))
        except Exception:  # whatever JavaScript throws where there is no network
            raise InputError(
                f"This needs {archive}, which could not be fetched from where the page came from."
            ) from None


def install(
    archives: Mapping[str, str], missing: Mapping[str, str], folder: str, fetch: Callable[[str], bytes]
) -> None:
    """Have late packages found from now on."""
    sys.meta_path.insert(0, LatePackages(archives, missing, Path(folder), fetch))


def resting(unwanted: Callable[[], bool], rest: Callable[[], object]) -> Callable[[], bool]:
    """`unwanted`, after a moment in which the worker hears what the page says meanwhile; `rest()` is a promise of that moment.

    Python can wait for a promise only where the browser can suspend WebAssembly; elsewhere a question runs to its end.
    """
    from pyodide.ffi import can_run_sync, run_sync  # pyright: ignore[reportMissingImports]

    rested = time.perf_counter()

    def asked() -> bool:
        nonlocal rested
        if time.perf_counter() - rested > BREATH_S and can_run_sync():
            run_sync(rest())
            rested = time.perf_counter()
        return unwanted()

    return asked


def answer_in_worker(
    text: str, post: Callable[[str], object], unwanted: Callable[[], bool], rest: Callable[[], object]
) -> None:
    """`answer_text` as the worker calls it."""
    answer_text(text, post, resting(unwanted, rest))


def answer_text(text: str, post: Callable[[str], object], unwanted: Callable[[], bool] = lambda: False) -> None:
    """Answer a request that is JSON text by messages that are; ends early where `unwanted` says that nobody waits."""

    def send(message: dict[str, object]) -> None:
        post(json.dumps(message))
        if unwanted():
            raise Unwanted

    with contextlib.suppress(Unwanted):
        answer(json.loads(text), send)
