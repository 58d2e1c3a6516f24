"""The built site, page by page: every link and anchor leads somewhere, and nothing is asked of other origins.

python -m tools.check_site site
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ASKED = {
    "img": "src",
    "script": "src",
    "link": "href",
    "iframe": "src",
    "source": "srcset",
    "video": "src",
    "audio": "src",
}
"""Elements that make a browser ask for something by themselves."""
SILENT = ("canonical", "next", "prev", "alternate", "author", "license")
"""Relations of `<link>` that only say where something is."""


class SitePage(HTMLParser):
    """What a page links to, what it asks for, and where it can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.asked: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        wanted = found.get(ASKED.get(tag, ""), "")
        if wanted and not (tag == "link" and found.get("rel", "") in SILENT):
            self.asked.append(wanted)


def target_of(site: Path, page: Path, link: str) -> Path:
    """The file that a link of a page leads to."""
    path = unquote(urlsplit(link).path)
    if not path:
        return page
    found = (site / path.lstrip("/") if path.startswith("/") else page.parent / path).resolve()
    return found / "index.html" if found.is_dir() else found


def problems(site: Path) -> list[str]:
    """What is wrong, a line each."""
    site = site.resolve()
    pages = {
        path: SitePage(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html")) if _ours(site, path)
    }
    found: list[str] = []
    for path, page in pages.items():
        name = path.relative_to(site)
        elsewhere = [link for link in page.asked if urlsplit(link).netloc]
        found += [f"{name} asks another origin for {link}" for link in elsewhere]
        for link in page.links + [link for link in page.asked if link not in elsewhere]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = target_of(site, path, link)
            if not target.exists():
                found.append(f"{name} leads to {link}, which is not there")
            elif parts.fragment and target in pages and not _anchored(pages[target], parts.fragment):
                found.append(f"{name} leads to {link}, which has no such anchor")
    styles = [path for path in site.rglob("*.css") if _ours(site, path)]
    found += [
        f"{path.relative_to(site)} asks another origin"
        for path in styles
        if "url(http" in path.read_text(encoding="utf-8")
    ]
    return found


def _ours(site: Path, path: Path) -> bool:
    """The page with the planner inside it is checked by its own tests."""
    return path.relative_to(site).parts[0] != "app"


def _anchored(page: SitePage, fragment: str) -> bool:
    return unquote(fragment) in page.ids or fragment.startswith(("only-", "__"))


def main(folder: str = "site") -> int:
    found = problems(Path(folder))
    for line in found[:50]:
        print(line)
    pages = sum(1 for path in Path(folder).rglob("*.html") if _ours(Path(folder), path))
    print(f"{pages} pages checked: {len(found) or 'no'} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
