"""A link with a picture of its answer: a small page that names them for whoever shows a preview, and leads on.

    python -m tools.static_edition.links "#train?model=llama3-70b&on=h100:512&batch=4Mi&seq=8192" --name h100-512 \
        --out site/app

What stands behind the `#` of an address never reaches a host, so previews of the page's own links are all alike. This
writes `links/NAME.html` with the answer's sentence and its picture (`og:image`), worked out by the planner here; the
build of the static edition does so for every card of the docs. The picture is drawn as SVG, and as the PNG that
previews want where a Chromium is found.
"""

import argparse
import html
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from dragonscale.errors import InputError
from dragonscale.web.answers import answer
from tools.static_edition.cards import LiveCard, stop_of

WIDE, HIGH = 1200, 630
SPOKEN, SHOWN = 46, 4
"""Characters of a line of the sentence, and figures under it."""
FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta property="og:title" content="{title}">
<meta property="og:description" content="{about}">
<meta property="og:image" content="{picture}">
<meta property="og:image:width" content="1200"><meta property="og:image:height" content="630">
<meta name="twitter:card" content="summary_large_image">
<meta http-equiv="refresh" content="0; url=../index.html{address}">
</head><body><p><a href="../index.html{address}">{title}</a></p></body></html>
"""


def said_at(address: str) -> tuple[str, list[tuple[str, str]]]:
    """The sentence and the figures of an address of the page, from its `#` on."""
    view, _, query = address.removeprefix("#").partition("?")
    fields = {name: value for name, value in parse_qsl(query) if not name.startswith(("view.", "file."))}
    found: dict[str, Any] = {}
    request = {"view": view, "fields": fields, "panels": ["answer"]}
    answer(
        request, lambda message: found.update({message["panel"]: message["data"]} if "panel" in message else message)
    )
    if "error" in found:
        raise InputError(found["error"]["text"])
    return found["answer"]["sentence"], figures_of(found["answer"]["figures"])


def figures_of(figures: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Labels and texts of the figures that are known."""
    told = [(one["label"], one["number"]["text"] if "number" in one else one["text"]) for one in figures]
    return [(label, text) for label, text in told if text != "–"][:SHOWN]


def picture(sentence: str, figures: Sequence[tuple[str, str]]) -> str:
    """The answer as a drawing: its sentence in up to four lines, its figures, and what made it.

    >>> "7.15s" in picture("7.15s a step, 52% MFU: llama3-70b fits.", [("step", "7.15s")])
    True
    """
    lines = textwrap.wrap(sentence, SPOKEN, max_lines=4, placeholder=" …")
    texts = [
        f'<text x="70" y="{150 + 62 * at}" font-size="46" font-weight="700" fill="#1b1f24">{html.escape(line)}</text>'
        for at, line in enumerate(lines)
    ]
    step = (WIDE - 140) / max(len(figures), 1)
    for at, (label, text) in enumerate(figures):
        x = 70 + step * at
        texts.append(f'<text x="{x:.0f}" y="450" font-size="26" fill="#59636e">{html.escape(label)}</text>')
        texts.append(
            f'<text x="{x:.0f}" y="506" font-size="46" font-weight="700" fill="#2360c5">{html.escape(text)}</text>'
        )
    texts.append(
        '<text x="70" y="582" font-size="26" fill="#59636e">Dragonscale: every number with its derivation</text>'
    )
    inside = "".join(texts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{HIGH}" viewBox="0 0 {WIDE} {HIGH}" '
        f'font-family="{FONT}"><rect width="{WIDE}" height="{HIGH}" fill="#ffffff"/>'
        f'<rect width="{WIDE}" height="14" fill="#2360c5"/>{inside}</svg>'
    )


def painted(pictures: Mapping[str, str]) -> dict[str, bytes]:
    """Drawings as PNG, where a Chromium is found; nothing elsewhere."""
    from tests.web.browser import launch, why_no_browser

    if why_no_browser() is not None:
        return {}
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_page(viewport={"width": WIDE, "height": HIGH})
        made = {}
        for name, svg in pictures.items():
            page.set_content(f'<body style="margin:0">{svg}</body>')
            made[name] = page.screenshot()
        browser.close()
    return made


def link_files(links: Mapping[str, tuple[str, str, Sequence[tuple[str, str]]]], base: str = "") -> dict[str, bytes]:
    """The files of links by name: each its address, sentence and figures. `base` is the site's own address, since some
    previews want the picture's whole one."""
    drawn = {name: picture(sentence, figures) for name, (_, sentence, figures) in links.items()}
    pngs = painted(drawn)
    files = {f"links/{name}.svg": svg.encode() for name, svg in drawn.items()}
    files |= {f"links/{name}.png": png for name, png in pngs.items()}
    for name, (address, sentence, figures) in links.items():
        shown = f"{base}{'links/' if base else ''}{name}.{'png' if name in pngs else 'svg'}"
        about = ", ".join(f"{label} {text}" for label, text in figures)
        words = {"title": sentence, "about": about, "picture": shown, "address": address}
        files[f"links/{name}.html"] = PAGE.format(**{key: html.escape(one) for key, one in words.items()}).encode()
    return files


def card_link(card: LiveCard) -> tuple[str, str, list[tuple[str, str]]]:
    """The link of a card, at the stop where it begins."""
    stop = stop_of(card, card.stops[card.start])
    return stop["address"], stop["sentence"], figures_of(stop["figures"])


def main() -> None:
    """Write a link's page and picture."""
    parser = argparse.ArgumentParser(description="A link of the page with a picture of its answer.")
    parser.add_argument("address", help="the page's address from its # on")
    parser.add_argument("--name", required=True)
    parser.add_argument("--out", type=Path, default=Path("site/app"), help="the folder of the static edition")
    parser.add_argument("--base", default="", help="where that folder is published, such as https://example.org/app/")
    given = parser.parse_args()
    address = f"#{given.address.partition('#')[2]}"
    try:
        sentence, figures = said_at(address)
    except InputError as error:
        raise SystemExit(str(error)) from None
    for name, data in link_files({given.name: (address, sentence, figures)}, given.base).items():
        path = given.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        print(path)


if __name__ == "__main__":
    main()
