"""Links of the docs: whether files and anchors are there, and which pages a page leads on to.

Anchors follow the rule of the site's builder (Python-Markdown's `toc`): ASCII letters, digits and hyphens of the
heading in lower case; a heading that comes again gets `_1`.
"""

import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path

BUILT = "app/index.html"
"""The static edition of the page, which `make docs` puts beside the built docs."""
FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"(?<!\\)\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^)\s]+)(?: \"[^\"]*\")?\)")
_SOURCE = re.compile(r'(?:src|srcset|href)="([^"]+)"')
_HEADING = re.compile(r"^(#{1,6}) +(.*?) *#*$", re.MULTILINE)
_ID = re.compile(r'\bid="([^"]+)"|\{[^}]*#([\w-]+)[^}]*\}')


def slug(heading: str) -> str:
    """The anchor of a heading.

    >>> slug("dscale run train"), slug("What `--plan` takes: *all* of it"), slug("6·N·D, α–β")
    ('dscale-run-train', 'what-plan-takes-all-of-it', '6nd')
    """
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"<[^>]+>", "", re.sub(r"[`*]", "", text))
    ascii_only = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())


def anchors(text: str) -> set[str]:
    """What a link into a page may name behind `#`.

    >>> sorted(anchors("# One\\n## Two\\n## Two\\n```\\n# no\\n```\\n"))
    ['one', 'two', 'two_1']
    """
    found: set[str] = set()
    prose = FENCE.sub("", text)
    for _, heading in _HEADING.findall(prose):
        name, again = slug(heading), 0
        while (one := f"{name}_{again}" if again else name) in found:
            again += 1
        found.add(one)
    return found | {name for pair in _ID.findall(prose) for name in pair if name}


def links(text: str) -> list[str]:
    """Where a page's links and pictures lead, as written; nothing of its code."""
    prose = _CODE.sub("", FENCE.sub("", text))
    return _LINK.findall(prose) + _SOURCE.findall(prose)


def is_local(link: str) -> bool:
    return not re.match(r"[a-z]+:", link)


def broken_links(page: Path, generated: Mapping[Path, str] | None = None) -> list[str]:
    """Links of a page to files, or to anchors of pages, that do not exist.

    `generated` has the text of pages that the site shows otherwise than the repository (`build_docs`).
    """
    generated = generated or {}
    broken = []
    for link in filter(is_local, links(_text_of(page, generated))):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if path == BUILT:
            continue
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(_text_of(target, generated))
        ):
            broken.append(link)
    return broken


def _text_of(page: Path, generated: Mapping[Path, str]) -> str:
    return generated.get(page) or page.read_text(encoding="utf-8")


def ways_on(page: Path) -> list[str]:
    """Other pages that the last section of a page links to."""
    text = page.read_text(encoding="utf-8")
    prose = FENCE.sub("", text)
    starts = [match.start() for match in re.finditer(r"^## ", prose, re.MULTILINE)]
    last = prose[starts[-1] :] if starts else prose
    targets = [link.partition("#")[0] for link in links(last) if is_local(link)]
    return [one for one in targets if one.endswith(".md") and (page.parent / one).resolve() != page]
