"""The page's files: read and compressed once, sent with a tag, so that a reload asks but does not load. Its modules and
styles are sent as one file each (`page_bundle`).

A file that changed on the disk is read anew, so that whoever works on the page only has to reload it. Paths are looked
up in a table of what is there; nothing of a request is ever put together to a path.
"""

import gzip
import hashlib
import mimetypes
import os
import time
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

from starlette.responses import Response

from dragonscale.prompt_http import WRONG_PATH
from dragonscale.web.page_bundle import bundled
from dragonscale.web.server.gate import Refusal

PAGE = Path(__file__).parents[1] / "page"
DOCS = Path(__file__).parents[4] / "docs"
"""The pages of the documentation, as text, where the package runs from a checkout; derivations link to them."""
_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".png": "image/png",
    ".md": "text/plain; charset=utf-8",
}
_SMALLEST = 512
"""Bytes below which compressing costs more than it saves."""
RESCAN_S = 1.0


@dataclass(frozen=True)
class PageFile:
    """A file as it is sent."""

    body: bytes
    packed: bytes
    """Compressed; empty where that is not shorter."""
    kind: str
    headers: dict[str, str]
    version: tuple[int, int]


class PageFiles:
    """Every file below a folder, by the path of its address."""

    def __init__(self, folder: Path = PAGE, docs: Path = DOCS) -> None:
        self.folder, self.docs = folder, docs
        self.files: dict[str, PageFile] = {}
        self.places: dict[str, Path] = {}
        self.scanned = 0.0
        self._scan()

    def _scan(self) -> None:
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        self.places = {"/" + path.relative_to(self.folder).as_posix(): path for path in paths}
        if (self.docs / "web.md").is_file():
            shown = [*self.docs.rglob("*.md"), *(self.docs / "pictures").glob("*.svg")]
            self.places |= {f"/docs/{path.relative_to(self.docs).as_posix()}": path for path in sorted(shown)}
        self.made = bundled({name[1:]: path.read_bytes() for name, path in self.places.items() if path in set(paths)})
        self.version = self._stat()
        self.scanned = time.monotonic()
        for name in (*self.places, *(f"/{name}" for name in self.made)):
            self.file(name)

    def _stat(self) -> tuple[int, int]:
        """The state of the modules and styles on the disk."""
        now = [os.stat(path) for name, path in self.places.items() if not name.startswith("/docs/")]
        return max((status.st_mtime_ns for status in now), default=0), sum(status.st_size for status in now)

    def file(self, name: str) -> PageFile | None:
        """The file at a path of the address, read again where it changed."""
        name = "/index.html" if name == "/" else name
        is_bundled = name[1:] in self.made
        old = time.monotonic() - self.scanned > RESCAN_S
        if old and ((is_bundled and self._stat() != self.version) or (not is_bundled and name not in self.places)):
            self._scan()
        if is_bundled:
            file = self.files.get(name)
            if file is None or file.version != self.version:
                file = self.files[name] = _packed(name, self.made[name[1:]], self.version)
            return file
        path = self.places.get(name)
        if path is None:
            return None
        try:
            now = os.stat(path)
            file = self.files.get(name)
            if file is None or file.version != (now.st_mtime_ns, now.st_size):
                file = self.files[name] = _read(path, now)
        except OSError:
            return None
        return file

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            raise Refusal(405, WRONG_PATH[405], headers={"allow": "GET, HEAD"})
        file = self.file(scope["path"])
        if file is None:
            raise Refusal(404, WRONG_PATH[404])
        headers = dict(scope["headers"])
        packed = bool(file.packed) and accepts_gzip(headers)
        more = {"content-encoding": "gzip"} if packed else {}
        answer = Response(file.packed if packed else file.body, headers=file.headers | more, media_type=file.kind)
        if file.headers["etag"].encode() in headers.get(b"if-none-match", b""):
            answer = Response(status_code=304, headers=file.headers)
        await answer(scope, receive, send)


def accepts_gzip(headers: dict[bytes, bytes]) -> bool:
    """Whether a client takes gzip.

    >>> accepts_gzip({b"accept-encoding": b"br, gzip;q=0.5"}), accepts_gzip({b"accept-encoding": b"gzip;q=0"})
    (True, False)
    """
    for word in headers.get(b"accept-encoding", b"").lower().split(b","):
        name, _, quality = word.strip().partition(b";")
        if name.strip() in (b"gzip", b"*"):
            return quality.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")
    return False


def _read(path: Path, now: os.stat_result) -> PageFile:
    return _packed(path.name, path.read_bytes(), (now.st_mtime_ns, now.st_size))


def _packed(name: str, body: bytes, version: tuple[int, int]) -> PageFile:
    packed = gzip.compress(body, 9, mtime=0) if len(body) >= _SMALLEST else b""
    tag = hashlib.sha256(body).hexdigest()[:32]
    kind = _TYPES.get(os.path.splitext(name)[1].lower()) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    headers = {"etag": f'"{tag}"', "cache-control": "no-cache", "vary": "accept-encoding"}
    headers["last-modified"] = formatdate(version[0] / 1e9, usegmt=True)
    shorter = packed if len(packed) < len(body) else b""
    return PageFile(body, shorter, kind, headers, version)
