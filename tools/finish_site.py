"""What the builder of the site leaves open: dark pictures, and files of the repository that pages link to.

    python -m tools.finish_site site

A chart's colours are meanings, so its dark twin is the same picture with each light colour exchanged for the dark one
of its meaning. Twins are made for the site alone; the repository keeps the light ones. Some pictures become cards whose
slider moves (`tools/static_edition/cards.toml`). Notebooks and the like, which lie beside docs/, are copied to where
the pages' links lead.
"""

import re
import shutil
import sys
from pathlib import Path

from dragonscale.blocks.charts.theme import DARK, LIGHT, TINTS
from tools.check_site import SitePage, target_of
from tools.static_edition.cards import finished

ROOT = Path(__file__).parents[1]

_IMAGE = re.compile(r'<img(?P<before>[^>]*?)src="(?P<path>[^"#]*pictures/[\w/.-]+?)\.svg"(?P<after>[^>]*)>')


def colours() -> dict[str, str]:
    """Light colours and their dark counterparts, tints and shades included."""
    roles = ("background", "ink", "muted", "grid", *LIGHT.colours)
    tints = ("", ":-1", *(f":{place}" for place in range(1, len(TINTS))))
    # A role's own colour goes before tints that happen to be the same.
    return {LIGHT.colour(f"@{role}{tint}"): DARK.colour(f"@{role}{tint}") for tint in reversed(tints) for role in roles}


_ON = re.compile(r'<text[^>]*?paint: (on:[\w:-]+)[^>]*?fill="(#[0-9A-Fa-f]{6})"')


def darkened(svg: str, table: dict[str, str]) -> str:
    """A picture with the dark colours. What is written on a colour says on which, and is black or white as that asks
    for.

    >>> darkened('<rect fill="#FFFFFF"/><text fill="#1b1f24"/>', colours())
    '<rect fill="#14171C"/><text fill="#ECEFF3"/>'
    >>> darkened('<text aria-label="paint: on:pipe; text: 9%" fill="#000000">9%</text>', colours())
    '<text aria-label="paint: on:pipe; text: 9%" fill="black">9%</text>'
    """

    def written_on(match: re.Match[str]) -> str:
        name = "black" if DARK.colour(f"@{match[1]}") == "#000000" else "white"
        return match[0].replace(f'fill="{match[2]}"', f'fill="{name}"')

    return re.sub(r"#[0-9A-Fa-f]{6}\b", lambda match: table.get(match[0].upper(), match[0]), _ON.sub(written_on, svg))


def both(html: str) -> str:
    """A page whose pictures come in pairs, of which the scheme of the reader shows one.

    >>> both('<img alt="a" src="../pictures/a.svg">')
    '<img alt="a" src="../pictures/a.svg#only-light"><img alt="a" src="../pictures/a-dark.svg#only-dark">'
    """
    return _IMAGE.sub(
        r'<img\g<before>src="\g<path>.svg#only-light"\g<after>><img\g<before>src="\g<path>-dark.svg#only-dark"\g<after>>',
        html,
    )


def copy_linked(site: Path) -> None:
    """Files of the repository that pages link to, into the site."""
    for page in _pages(site):
        for link in SitePage(page.read_text(encoding="utf-8")).links:
            target = target_of(site, page, link)
            if "://" not in link and not target.exists() and target.is_relative_to(site):
                source = ROOT / target.relative_to(site)
                if source.is_file():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, target)


def _pages(site: Path) -> list[Path]:
    return [page for page in sorted(site.rglob("*.html")) if "app" not in page.relative_to(site).parts]


def main(folder: str) -> None:
    site, table = Path(folder).resolve(), colours()
    for picture in sorted((site / "pictures").rglob("*.svg")):
        twin = picture.with_name(f"{picture.stem}-dark.svg")
        if not picture.stem.endswith("-dark") and not twin.exists():
            twin.write_text(darkened(picture.read_text(encoding="utf-8"), table), encoding="utf-8")
    for page in _pages(site):
        text = page.read_text(encoding="utf-8")
        if "#only-light" not in text:
            inside = page.parent.relative_to(site)
            source = "index.md" if page.parent == site else f"{inside.as_posix()}.md"
            page.write_text(finished(both(text), source, "../" * len(inside.parts)), encoding="utf-8")
    copy_linked(site)


if __name__ == "__main__":
    main(*sys.argv[1:2])
