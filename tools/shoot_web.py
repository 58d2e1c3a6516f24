"""Takes the docs' pictures of the page: every tab, light and dark, wide and on a phone.

    python -m tools.shoot_web [TAB …]

The page is served from this checkout and drawn by the Chromium that the tests use. Pictures go to docs/pictures/web as
NAME-{light,dark}-{wide,phone}.png, with a palette of 255 colours, which is all that a page of flat colours needs: a
third of the size, and the difference cannot be seen.
"""

import base64
import struct
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from playwright.sync_api import sync_playwright

from tests.web.browser import launch
from tests.web.serving import served, wait_ready

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FOLDER = Path(__file__).parents[1] / "docs" / "pictures" / "web"
TABS = {
    "train": "train",
    "serve": "serve",
    "simulate": "simulate",
    "rl": "rl",
    "operations": "operations",
    "chips": "chips",
    "models": "models",
    "learn": "learn",
}
"""Pictures by name, and the address after the `#` that shows them."""
SIZES = {"wide": (1440, 900, 2200), "phone": (390, 844, 2400)}
"""Width, height, and the most of the page's height that is kept, in pixels."""
MOST_BYTES = 250_000
COLOURS = 255
DECODE = """async (png) => {
  const bytes = Uint8Array.from(atob(png), (one) => one.charCodeAt(0));
  const picture = await createImageBitmap(new Blob([bytes], { type: 'image/png' }));
  const drawn = new OffscreenCanvas(picture.width, picture.height).getContext('2d');
  drawn.drawImage(picture, 0, 0);
  const { data } = drawn.getImageData(0, 0, picture.width, picture.height);
  const parts = [];
  for (let at = 0; at < data.length; at += 30000) parts.push(btoa(String.fromCharCode(...data.subarray(at, at + 30000))));
  return [picture.width, picture.height, parts.join('')];
}"""


def shoot(browser: "Browser", address: str, name: str, theme: str, size: str) -> Path:
    """One picture of one tab."""
    width, height, most = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(f"{address}#{TABS[name]}")
    wait_ready(page, 120.0)
    page.wait_for_timeout(400)
    tall = min(page.evaluate("document.documentElement.scrollHeight"), most)
    page.set_viewport_size({"width": width, "height": max(tall, height)})
    page.wait_for_timeout(400)
    wait_ready(page, 120.0)
    picture = page.screenshot()
    page.goto("about:blank")
    path = FOLDER / f"{name}-{theme}-{size}.png"
    path.write_bytes(with_palette(pixels_of(page, picture)))
    context.close()
    if path.stat().st_size > MOST_BYTES:
        print(f"{path.name} has {path.stat().st_size} bytes, more than {MOST_BYTES}", file=sys.stderr)
    return path


def with_palette(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG with a palette, every pixel being the nearest colour of it."""
    height, width, _ = pixels.shape
    packed = pixels.astype(np.uint32) @ np.array([65536, 256, 1], np.uint32)
    every, back, counts = np.unique(packed, return_inverse=True, return_counts=True)
    colours = np.stack([every >> 16, every >> 8 & 255, every & 255], axis=1).astype(np.int32)
    table = colours[palette(colours, counts)]
    nearest = np.concatenate(
        [
            np.argmin(((part[:, None, :] - table[None]) ** 2).sum(axis=2), axis=1)
            for part in np.array_split(colours, len(colours) // 512 + 1)
        ]
    ).astype(np.uint8)
    rows = np.zeros((height, width + 1), np.uint8)
    rows[:, 1:] = nearest[back].reshape(height, width)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", table.astype(np.uint8).tobytes()),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
            _chunk(b"IEND", b""),
        ]
    )


def palette(colours: NDArray[np.int32], counts: NDArray[np.int64]) -> list[int]:
    """Places of the colours to keep: half by how often they occur, half by how far they are from those, so that a small
    mark keeps its own."""
    kept = [int(place) for place in np.argsort(-counts, kind="stable")[: COLOURS // 2]]
    far = np.full(len(colours), np.inf)
    for place in kept:
        far = np.minimum(far, ((colours - colours[place]) ** 2).sum(axis=1))
    while len(kept) < min(COLOURS, len(colours)):
        place = int(np.argmax(far * np.sqrt(np.minimum(counts, 400))))
        kept.append(place)
        far = np.minimum(far, ((colours - colours[place]) ** 2).sum(axis=1))
    return kept


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pixels_of(page: "Page", png: bytes) -> NDArray[np.uint8]:
    """Red, green and blue of a PNG, decoded by the browser."""
    width, height, raw = page.evaluate(DECODE, base64.b64encode(png).decode())
    return np.frombuffer(base64.b64decode(raw), np.uint8).reshape(height, width, 4)[:, :, :3]


def main(names: list[str]) -> None:
    """Take the pictures of the tabs named, or of every tab."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with served() as address, sync_playwright() as playwright:
        browser = launch(playwright)
        for name in names or TABS:
            for theme in ("light", "dark"):
                for size in SIZES:
                    path = shoot(browser, address, name, theme, size)
                    print(f"{path.name} {path.stat().st_size // 1000} kB", flush=True)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
