"""How many words of the tracked Markdown people wrote, page by page.

    python -m tools.docs_words

Not counted are code, what commands printed, and what tools write between `<!-- name -->` and `<!-- end -->` or
`<!-- /name -->`.
"""

import re
import subprocess
from pathlib import Path

from tools.docs_links import FENCE

ROOT = Path(__file__).parents[1]
WRITTEN_BY_TOOLS = ("docs/real-questions.md",)
"""Pages that a tool writes as a whole."""
_GENERATED = re.compile(
    r"<!-- (?P<name>[\w -]+?)(?::[^>]*)? -->.*?<!-- (?:/(?P=name)|(?P=name): end|end) -->", re.DOTALL
)


def written_words(text: str) -> int:
    """The words that people wrote.

    >>> written_words("# Why?\\n```console\\n$ dscale chips\\n```\\n<!-- errors -->\\n| a | b |\\n<!-- end -->\\n")
    2
    """
    return len(_GENERATED.sub("", FENCE.sub("", text)).split())


def written_pages() -> list[Path]:
    """Every Markdown file that git tracks, that is there and that people write."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.splitlines() if name not in WRITTEN_BY_TOOLS]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def main() -> None:
    """List the pages, the longest last."""
    counts = sorted((written_words(page.read_text(encoding="utf-8")), page) for page in written_pages())
    for words, page in counts:
        print(f"{words:7,}  {page.relative_to(ROOT)}")
    print(f"{sum(words for words, _ in counts):7,}  in all")


if __name__ == "__main__":
    main()
