"""The house stays small: code lines of each room under its ceiling, few files, few rooms, all of it formatted."""

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tools.code_lines import PACKAGE, by_room, code_lines

ROOT = Path(__file__).parents[2]
TABLE = tomllib.loads((ROOT / "tools" / "ceilings.toml").read_text(encoding="utf-8"))


def test_every_room_is_under_its_ceiling() -> None:
    sizes = {room: lines for room, (lines, _) in by_room().items()}
    assert set(sizes) == set(TABLE["rooms"]), (
        "a room without a ceiling in tools/ceilings.toml, or a ceiling without a room"
    )
    over = {room: f"{lines} of {TABLE['rooms'][room]}" for room, lines in sizes.items() if lines > TABLE["rooms"][room]}
    assert not over, f"{over}: say what goes, or raise the ceiling in tools/ceilings.toml and say why"


def test_the_whole_is_under_its_ceiling() -> None:
    rooms = by_room()
    assert sum(lines for lines, _ in rooms.values()) <= TABLE["whole"]["code_lines"]
    assert sum(files for _, files in rooms.values()) <= TABLE["whole"]["files"]
    assert len(rooms.keys() - {"(top)"}) <= TABLE["whole"]["rooms"]


def test_nothing_is_kept_from_the_formatter() -> None:
    texts = [path.read_text(encoding="utf-8") for path in ROOT.glob("src/**/*.py")]
    assert sum(len(re.findall(r"# fmt: (?:skip|off)", text)) for text in texts) <= TABLE["whole"]["format_skips"]


def test_no_file_is_a_sliver_and_none_is_a_drawer() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if path.name not in ("__init__.py", "__main__.py")]
    slivers = [path for path in files if len(path.read_text(encoding="utf-8").splitlines()) < 30]
    assert len(slivers) <= TABLE["whole"]["slivers"], [str(path.relative_to(PACKAGE)) for path in slivers]
    long = [path for path in files if len(path.read_text(encoding="utf-8").splitlines()) > 400]
    assert len(long) <= TABLE["whole"]["long_files"], [str(path.relative_to(PACKAGE)) for path in long]


def test_few_files_are_called_alike() -> None:
    names = Counter(path.name for path in PACKAGE.rglob("*.py") if path.name not in ("__init__.py", "__main__.py"))
    alike = {name: count for name, count in names.items() if count > TABLE["whole"]["alike"]}
    assert not alike, f"{alike}: a file is named after the noun that it holds"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('"""Doc."""\n\nx = 1  # why\n', 1),
        ("# a comment\n", 0),
        ('def f():\n    """Doc\n    more."""\n    return (\n        1\n    )\n', 4),
        ('x = """a\nb"""\n', 2),
    ],
)
def test_code_lines_are_counted(text: str, lines: int) -> None:
    assert code_lines(text) == lines
