"""Packages that come late, or not at all, to the planner inside a browser.

Large packages that few questions need (SymPy, the random numbers of simulations, YAML) are not there when the static
edition starts: an import of one fetches it. What runs programs (`verify`, `run`, `calibrate`) cannot be had at all: an
import of its parts is told as a sentence. This is installed before the rest of the package is imported, so it imports
nothing of it but errors.
"""

import importlib
import io
import sys
import zipfile
from collections.abc import Callable, Mapping
from importlib.abc import MetaPathFinder
from pathlib import Path

from dragonscale.errors import InputError


class LatePackages(MetaPathFinder):
    """Fetches an archive into `folder` when one of its packages is first imported; says in a sentence what cannot be
    had at all.

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
            self.archives = {name: packages for name, packages in self.archives.items() if packages != archive}
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
    import numpy

    # SymPy's compiled formulas take `*` of NumPy: that must not ask for the subpackages that were left out.
    numpy.__all__ = [name for name in numpy.__all__ if name in vars(numpy)]
