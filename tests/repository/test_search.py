"""The page that answers a question is found: among the first three that a search of the site's sections lists."""

import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tools.build_docs import unchecked_pages

DOCS = Path(__file__).parents[2] / "docs"
SEARCHES = tomllib.loads(Path(__file__).with_name("searches.toml").read_text(encoding="utf-8"))["search"]
K1, B = 1.2, 0.75
"""Of BM25, as lunr, which searches such sites in the browser, has them."""
TITLE, HEADING = 8.0, 3.0
"""How much more a word of the title or of a heading counts; a reference lists every word and counts less."""
REFERENCE = 0.4


def words(text: str) -> list[str]:
    """Words without endings, as search engines stem them."""
    return [re.sub(r"(ies|ing|ed|es|s)$", "", one) or one for one in re.findall(r"[a-z0-9]+", text.lower())]


EMPTY = {*words("a an the is are of on in to for with and or my i do does how what it that not who when")}


@cache
def sections() -> list[tuple[str, Counter[str], float]]:
    """Each section of each page: the page, its words as they count, its length."""
    return [
        (path.relative_to(DOCS).as_posix(), counted, sum(counted.values()))
        for path in sorted(DOCS.rglob("*.md"))
        if path.name != "changelog.md"
        for counted in counted_sections(unchecked_pages().get(path) or path.read_text(encoding="utf-8"))
    ]


def counted_sections(text: str) -> Iterator[Counter[str]]:
    title = text.partition("\n")[0].lstrip("# ")
    for part in re.split(r"^(?=#{1,3} )", text, flags=re.M):
        head, _, body = part.partition("\n")
        counted = Counter[str]()
        for weight, said in ((1.0, body), (HEADING, head), (TITLE, title)):
            for word in words(said):
                counted[word] += weight  # type: ignore[assignment]
        yield counted


def found(question: str) -> list[str]:
    """The first three pages for a question, each by its best section."""
    every = sections()
    mean = sum(length for _, _, length in every) / len(every)
    best: dict[str, float] = {}
    asked = [word for word in words(question) if word not in EMPTY]
    rare = {word: math.log(1 + len(every) / (1 + sum(word in counted for _, counted, _ in every))) for word in asked}
    for page, counted, length in every:
        score = sum(
            rare[word] * counted[word] * (K1 + 1) / (counted[word] + K1 * (1 - B + B * length / mean)) for word in asked
        )
        if page.startswith(("reference-", "errata", "real-questions")) or page.endswith("-results.md"):
            score *= REFERENCE
        best[page] = max(best.get(page, 0.0), score)
    return sorted(best, key=lambda page: -best[page])[:3]


def test_each_question_finds_its_page() -> None:
    assert len(SEARCHES) >= 40
    missed = {asked: found(asked) for asked, *pages in SEARCHES if not {*pages} & {*found(asked)}}
    assert not missed, missed


def test_the_pages_are_there() -> None:
    assert all((DOCS / page).is_file() for _, *pages in SEARCHES for page in pages)


def test_each_page_begins_with_what_it_is_for() -> None:
    for path in (one for one in sorted(DOCS.rglob("*.md")) if one.name != "changelog.md"):
        first = path.read_text(encoding="utf-8").split("\n\n")[1]
        assert not first.startswith(("#", "```", "|", "<", "- ", "![")), f"{path.name} begins with {first[:60]!r}"
