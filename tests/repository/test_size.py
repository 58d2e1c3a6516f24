"""Size and density of the code: packages under their ceilings, all of it formatted, no name used for too many files."""

import re
import tomllib
from collections import Counter

import pytest

from tools import code_density
from tools.code_density import CEILINGS, PACKAGE, ROOT, CodeCount, ceilings, count_code, count_packages

LIMITS = {"tokens": 1000, "conditionals": 50, "nested": 1, "comprehensions": 60, "vague": 100, "comments": 10}
WHOLE = tomllib.loads(CEILINGS.read_text(encoding="utf-8"))["whole"]


def test_every_package_is_under_its_ceilings() -> None:
    faults = code_density.broken_limits(count_packages(), ceilings())
    assert not faults, "simplify, or raise the ceiling in tools/ceilings.toml and say why:\n" + "\n".join(faults)


def test_there_are_few_packages() -> None:
    packages = [folder for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()]
    assert len(packages) <= WHOLE["packages"]


def test_nothing_is_kept_from_the_formatter() -> None:
    texts = [path.read_text(encoding="utf-8") for path in ROOT.glob("src/**/*.py")]
    assert sum(len(re.findall(r"# fmt: (?:skip|off)", text)) for text in texts) <= WHOLE["format_skips"]


def test_few_files_have_the_same_name() -> None:
    names = Counter(path.name for path in PACKAGE.rglob("*.py") if path.name not in ("__init__.py", "__main__.py"))
    repeated = {name: count for name, count in names.items() if count > WHOLE["files_of_one_name"]}
    assert not repeated, f"{repeated}: name a file after the noun that it holds"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"""Doc."""\n\nx = 1  # why\n', {"lines": 1, "tokens": 3, "comments": 1, "names": 1}),
        ('class A:\n    """Doc."""\n\n    x: int = 1\n    """Of a field."""\n', {"lines": 2, "tokens": 8, "names": 1}),
        ('x = """a\nb"""\n', {"lines": 2, "tokens": 3, "names": 1}),
        ("one = [y for y in z]\n", {"lines": 1, "tokens": 9, "comprehensions": 1, "names": 2, "vague_names": 1}),
        ("x = 1 if a else 2 if b else 3\n", {"lines": 1, "tokens": 11, "conditionals": 2, "nested": 1, "names": 1}),
        ("def f(told):\n    return told\n", {"lines": 2, "tokens": 8, "names": 1, "vague_names": 1}),
    ],
)
def test_code_is_counted(text: str, expected: dict[str, int]) -> None:
    assert count_code(text) == CodeCount(files=1, **expected)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"tokens": 1001}, "a: tokens 1,001, the ceiling is 1,000"),
        ({"conditionals": 6}, "a: conditionals 60, the ceiling is 50"),
        ({"nested": 2}, "a: nested 2, the ceiling is 1"),
        ({"comprehensions": 7}, "a: comprehensions 70, the ceiling is 60"),
        ({"vague_names": 3}, "a: vague 150, the ceiling is 100"),
        ({"comments": 0}, "a: 0 comments per 10,000 tokens, at least 10 are wanted"),
    ],
)
def test_a_broken_limit_is_named(change: dict[str, int], fault: str) -> None:
    kept = {"tokens": 1000, "conditionals": 5, "nested": 1, "comprehensions": 6, "comments": 2}
    kept |= {"names": 20, "vague_names": 2}
    assert code_density.broken_limits({"a": CodeCount(**kept)}, {"a": LIMITS}) == []
    assert code_density.broken_limits({"a": CodeCount(**(kept | change))}, {"a": LIMITS}) == [fault]


def test_a_package_needs_a_ceiling_and_a_ceiling_a_package() -> None:
    assert code_density.broken_limits({"a": CodeCount()}, {"b": LIMITS}) == [
        "a has no ceiling",
        "b has a ceiling and is no package",
    ]


def test_ceilings_are_lowered_and_never_raised() -> None:
    count = CodeCount(tokens=2000, conditionals=2, comprehensions=20, comments=4)
    assert code_density.tightened({"a": count}, {"a": LIMITS}) == {
        "a": {"tokens": 1000, "conditionals": 10, "nested": 0, "comprehensions": 60, "vague": 0, "comments": 20}
    }
