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

import importlib
import io
import json
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path

from dragonscale.errors import InputError
from dragonscale.web.answers import Unwanted, answer


class LatePackages(MetaPathFinder):
    """Fetches an archive into `folder` when one of its packages is first imported; says what is missing for good."""

    def __init__(
        self, archives: Mapping[str, str], missing: Sequence[str], folder: Path, fetch: Callable[[str], bytes]
    ) -> None:
        self.archives, self.missing = dict(archives), tuple(missing)
        self.folder, self.fetch = folder, fetch

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        """Nothing is found here: after the archive is unpacked, Python's own finder sees its files."""
        archive = self.archives.get(fullname)
        if archive is not None:
            with zipfile.ZipFile(io.BytesIO(bytes(self.fetch(archive)))) as opened:
                opened.extractall(self.folder)
            self.archives = {name: one for name, one in self.archives.items() if one != archive}
            importlib.invalidate_caches()
        if fullname in self.missing:
            part = fullname.removeprefix("dragonscale.").replace(".", "/")
            raise InputError(f"This needs the machine itself ({part}), which a page without a server cannot use: run `dscale web`.")  # fmt: skip


def install(archives: Mapping[str, str], missing: Sequence[str], folder: str, fetch: Callable[[str], bytes]) -> None:
    """Have late packages found from now on. `archives` has the archive of each package."""
    sys.meta_path.insert(0, LatePackages(archives, missing, Path(folder), fetch))


def answer_text(text: str, post: Callable[[str], object], unwanted: Callable[[], bool] = lambda: False) -> None:
    """Answer a request that is JSON text by messages that are; ends early where `unwanted` says that nobody waits."""

    def send(message: dict[str, object]) -> None:
        post(json.dumps(message))
        if unwanted():
            raise Unwanted

    try:
        answer(json.loads(text), send)
    except Unwanted:
        return
