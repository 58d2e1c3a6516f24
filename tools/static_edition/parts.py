"""The parts of the static edition: fetched once, checked by their hashes, kept in `.cache/static/` of the checkout.

`parts.toml` names them. Nothing is taken on trust: a file whose hash differs is refused, whether it comes from the
network or from the cache. Only `urllib` is needed, neither Node nor a package manager of JavaScript.

    python -m tools.static_edition.parts        # fetch everything
"""

import functools
import hashlib
import os
import tomllib
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from dragonscale.errors import InputError

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "static"


@dataclass(frozen=True)
class Part:
    """A file that others made. It has a `url`, or is `vendored`: a path in this folder."""

    name: str
    version: str
    what: str
    home: str
    sha256: str
    size: int
    licence: str
    licence_file: str
    url: str = ""
    vendored: str = ""

    @property
    def path(self) -> Path:
        """Where the file lies, or will."""
        return HERE / self.vendored if self.vendored else CACHE / self.url.rsplit("/", 1)[1]


@functools.cache
def parts() -> dict[str, Part]:
    """Every part by name."""
    read = tomllib.loads((HERE / "parts.toml").read_text(encoding="utf-8"))
    return {name: Part(name=name, **row) for name, row in read.items()}


def fetch(name: str) -> Path:
    """The file of a part, from the cache or else from its registry."""
    part = parts()[name]
    if not part.path.exists():
        _keep(part, _downloaded(part))
    found = hashlib.sha256(part.path.read_bytes()).hexdigest()
    if found != part.sha256:
        raise InputError(f"{part.path} has the SHA-256 {found}, not that of parts.toml; delete it to fetch it again.")
    return part.path


def _downloaded(part: Part) -> bytes:
    try:
        with urllib.request.urlopen(part.url, timeout=60) as response:
            return response.read(part.size + 1)
    except (urllib.error.URLError, OSError) as error:
        why = getattr(error, "reason", error)
        raise InputError(
            f"{part.name} {part.version} could not be fetched from {part.url} ({why}); "
            f"with a network run `python -m tools.static_edition.parts` once, or put the file at {part.path}."
        ) from None


def _keep(part: Part, data: bytes) -> None:
    """Write the whole file or none: two builds may fetch at once."""
    if hashlib.sha256(data).hexdigest() != part.sha256:
        raise InputError(
            f"What {part.url} sent is not {part.name} {part.version}: its SHA-256 differs from parts.toml."
        )
    part.path.parent.mkdir(parents=True, exist_ok=True)
    half = part.path.with_name(f"{part.path.name}.{os.getpid()}")
    half.write_bytes(data)
    half.replace(part.path)


def main() -> None:
    for name, part in parts().items():
        print(f"{name} {part.version}: {fetch(name)}")


if __name__ == "__main__":
    main()
