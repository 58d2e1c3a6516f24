"""What a wheel and an sdist must hold and must not, and what the changelog must say: judged on names, sizes and text
alone."""

import re
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

LARGEST_FILE, LARGEST_ARCHIVE = 1_000_000, 6_000_000
"""Bytes of a file of the package, and of an archive."""
LARGEST_INSTALL = 178_000_000
"""Bytes of a plain install, what it has on Python 3.11 (176 MB, mostly SymPy and NumPy) and a little room: every file
under the environment's `lib`, with what it depends on and the .pyc files that pip makes."""
LICENCES = ("LICENSE", "THIRD_PARTY.md", "htm-preact.LICENSE", "preact.LICENSE")
_STRANGE = re.compile(r"(^|/)(tests?|docs|benchmarks|examples|\.github|\.venv|__pycache__)/|\.py[co]$|\.so$")
_ENTRY = re.compile(r"^## (\S+)(?: — (\d{4}-\d{2}-\d{2}))?\s*$", re.MULTILINE)

Sizes = Mapping[str, int]


def sizes_of(archive: Path) -> dict[str, int]:
    """The files of a wheel or an sdist, those of an sdist without the folder that holds them all."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            return {one.filename: one.file_size for one in opened.infolist() if not one.is_dir()}
    with tarfile.open(archive) as opened:
        return {one.name.partition("/")[2]: one.size for one in opened.getmembers() if one.isfile()}


def wheel_faults(sizes: Sizes, package: Iterable[str]) -> list[str]:
    """What is wrong with a wheel. `package` are the files that it must hold.

    >>> wheel_faults({"dragonscale/a.py": 1, "tests/test_a.py": 1}, ["dragonscale/a.py", "dragonscale/b.toml"])[:2]
    ['dragonscale/b.toml is missing', 'tests/test_a.py does not belong in it']
    """
    strangers = [name for name in sizes if not name.startswith(("dragonscale/", "dragonscale-")) or _is_strange(name)]
    infos = [name for name in sizes if ".dist-info/licenses/" in name]
    missing = [
        f"the licence {name} is missing" for name in LICENCES if not any(one.endswith(f"/{name}") for one in infos)
    ]
    return [*_missing(sizes, package), *_strangers(strangers), *missing, *_heavy(sizes)]


def sdist_faults(sizes: Sizes, package: Iterable[str]) -> list[str]:
    """What is wrong with an sdist."""
    needed = [
        *(f"src/{name}" for name in package),
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "THIRD_PARTY.md",
        "CHANGELOG.md",
    ]
    return [*_missing(sizes, needed), *_strangers([name for name in sizes if _is_strange(name)]), *_heavy(sizes)]


def _is_strange(name: str) -> bool:
    return _STRANGE.search(name) is not None


def _missing(sizes: Sizes, needed: Iterable[str]) -> list[str]:
    return [f"{name} is missing" for name in needed if name not in sizes]


def _strangers(names: Iterable[str]) -> list[str]:
    return [f"{name} does not belong in it" for name in names]


def _heavy(sizes: Sizes) -> list[str]:
    found = [f"{name} has {size:,} bytes" for name, size in sizes.items() if size > LARGEST_FILE]
    whole = sum(sizes.values())
    return found + ([f"its files have {whole:,} bytes"] if whole > 4 * LARGEST_ARCHIVE else [])


def changelog_faults(text: str, version: str) -> list[str]:
    """What is wrong with the changelog for a version.

    >>> changelog_faults("## Unreleased\\n## 0.2.0 — 2026-11-17\\n## 0.1.0 — 2026-11-15\\n", "0.2.0")
    []
    >>> changelog_faults("## Unreleased\\n## 0.1.0 — 2026-11-15\\n", "0.2.0")
    ['it has no entry for 0.2.0', 'its newest release is 0.1.0, pyproject says 0.2.0']
    >>> changelog_faults("## 0.2.0\\n", "0.2.0")
    ['0.2.0 has no date']
    """
    entries = [(name, date) for name, date in _ENTRY.findall(text) if name != "Unreleased"]
    dates = [date for _, date in entries if date]
    found = [] if version in dict(entries) else [f"it has no entry for {version}"]
    found += [f"{name} has no date" for name, date in entries if not date]
    if entries and entries[0][0] != version:
        found.append(f"its newest release is {entries[0][0]}, pyproject says {version}")
    return found + ([] if dates == sorted(dates, reverse=True) else ["its entries are not in the order of their dates"])


def unreleased(text: str) -> int:
    """How many entries wait for a release.

    >>> unreleased("## Unreleased\\n\\n- one\\n- two\\n## 0.1.0 — 2026-11-15\\n- three\\n")
    2
    """
    waiting = re.search(r"^## Unreleased\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return len(re.findall(r"^- ", waiting[1], re.MULTILINE)) if waiting else 0
