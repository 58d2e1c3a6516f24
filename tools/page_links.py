"""Links of Markdown pages: to files that are there, and to headings that are there.

An anchor is a heading as sites write it (`## The static edition` is `#the-static-edition`); GitHub and Zensical differ where signs stand between words, and
either spelling is taken.
"""

import re
from functools import cache
from pathlib import Path

_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\[[^\]\n]*\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
_HEADING = re.compile(r"^#{1,6} +(.+?)(?: +\{#([\w-]+)\})?\s*$", re.MULTILINE)
_ID = re.compile(r"<[^>]+\bid=\"([^\"]+)\"")


def anchors(text: str) -> frozenset[str]:
    """The anchors of a page.

    >>> sorted(anchors("# A `dscale` page\\n## TPUs & GPUs\\n## Twice\\n## Twice\\n"))
    ['a-dscale-page', 'tpus--gpus', 'tpus-gpus', 'twice', 'twice-1', 'twice_1']
    """
    plain = _FENCE.sub("", text)
    found: set[str] = set(_ID.findall(plain))
    seen: dict[str, int] = {}
    for title, own in _HEADING.findall(plain):
        for slug in {own} if own else _slugs(title):
            times = seen[slug] = seen.get(slug, -1) + 1
            found |= {f"{slug}-{times}", f"{slug}_{times}"} if times else {slug}
    return frozenset(found)


def _slugs(title: str) -> set[str]:
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
    kept = re.sub(r"[^\w\s-]", "", shown.replace("`", "")).strip().lower()
    return {re.sub(r"[-\s]+", "-", kept), re.sub(r"\s", "-", kept)}


def links(text: str) -> list[str]:
    """What a page links to inside the repository; code is no link."""
    found = _LINK.findall(_CODE.sub("", _FENCE.sub("", text)))
    return [link for link in found if not re.match(r"[a-z][a-z0-9+.-]*:|//", link)]


@cache
def _anchors_of(page: Path) -> frozenset[str]:
    return anchors(page.read_text(encoding="utf-8"))


def broken(page: Path) -> list[str]:
    """Links of a page to files or headings that are not there."""
    found = []
    for link in links(page.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            found.append(f"{page.name}: {link} (no such file)")
        elif anchor and target.suffix == ".md" and anchor not in _anchors_of(target):
            found.append(f"{page.name}: {link} (no such heading)")
    return found
