"""THIRD_PARTY.md lists every vendored file with its version and licence, and the texts that have to
travel are there."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8")
PARTS = tomllib.loads((ROOT / "tools/static_edition/parts.toml").read_text(encoding="utf-8"))
FOREIGN = re.compile(
    r"(^|/)(vendor|vendored|third_party|node_modules)/|\.(whl|wasm|woff2?|ttf|otf|jar|so)$|\.min\.(js|css)$"
)


def tracked() -> list[str]:
    """The files of the repository; where there is no git, those that lie there."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0 and done.stdout:
        return done.stdout.splitlines()
    folders = ("src", "tests", "tools", "docs", "examples", "benchmarks")
    return [str(path.relative_to(ROOT)) for name in folders for path in (ROOT / name).rglob("*") if path.is_file()]


def test_every_vendored_file_is_listed() -> None:
    own = ("README.md", ".d.ts")  # said of them by us
    found = [path for path in tracked() if FOREIGN.search(path) and not path.endswith(own)]
    assert len(found) >= 5
    assert [path for path in found if f"`{path}`" not in PAGE] == []


def test_every_file_that_is_listed_is_there() -> None:
    named = re.findall(r"`((?:src|tests|tools|docs|examples)/[\w./-]+)`", PAGE)
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", PARTS)
def test_the_parts_of_the_site_are_listed(name: str) -> None:
    part = PARTS[name]
    rows = [line for line in PAGE.splitlines() if line.startswith(f"| {name} |")]
    assert any(part["version"] in row and part["licence"] in row for row in rows), name


def test_versions_are_those_of_the_folders() -> None:
    """The README beside each vendored file and this list say the same."""
    for path, name in (("src/dragonscale/web/page/js/vendor", "htm"), ("tests/web/vendor", "axe-core")):
        version = re.search(rf"\| (?:htm )?(\d+\.\d+\.\d+) \| npm `{name}` \|", (ROOT / path / "README.md").read_text())
        assert version is not None
        assert re.search(rf"^\| {name} \| {re.escape(version[1])} \|", PAGE, re.MULTILINE)


def test_licences_travel_with_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    shipped = {str(path.relative_to(ROOT)) for pattern in project["license-files"] for path in ROOT.glob(pattern)}
    ours = {"LICENSE", "THIRD_PARTY.md"}
    theirs = set(re.findall(r"`(src/[\w./-]+LICENSE)`", PAGE))
    assert theirs
    assert shipped == ours | theirs
