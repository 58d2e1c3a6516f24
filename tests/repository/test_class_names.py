"""A public class name stands once in the package: a reader knows which class it is, and one search finds it."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "dragonscale"
CLASS = re.compile(r"^ *class ([A-Za-z]\w*) *[(:\[]", re.MULTILINE)
TEXT = re.compile(r'""".*?"""', re.DOTALL)


def twice(texts: Iterable[tuple[str, str]]) -> Mapping[str, list[str]]:
    """Public class names that stand more than once in such files, and in which."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, text in texts:
        for found in CLASS.findall(TEXT.sub("", text)):
            places[found].append(name)
    return {found: names for found, names in places.items() if len(names) > 1}


def test_no_class_name_stands_twice() -> None:
    found = twice(
        (path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")
    )
    assert not found, f"{found}: say in the name what tells it from the other"


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("class Plan:\n    pass\n", "class Plan(Struct):\n    pass\n", {"Plan": ["first", "second"]}),
        ("class Plan[T]:\n    class Step: ...\n", "    class Step:\n", {"Step": ["first", "second"]}),
        ("class Plan:\nclass _Plan:\n", "class _Plan:\nclass PlanFile:\nclassic: int\n", {}),
        ("class Plan:\n", '"""\nclass Plan:\n"""\n', {}),
    ],
)
def test_a_name_that_stands_twice_is_seen(first: str, second: str, found: dict[str, list[str]]) -> None:
    assert twice([("first", first), ("second", second)]) == found
