"""The check of a release: its judgements on names, sizes and text; the real build is slow."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tools.check_release import PYTHONS, ROOT, Checked, check_archives, check_words, first_commands, main, version
from tools.docs_links import anchors, broken_links, is_local, links
from tools.release_contents import LARGEST_FILE, LICENCES, changelog_faults, sdist_faults, unreleased, wheel_faults

PEOPLE = ("MAINTAINERS.md", "CODE_OF_CONDUCT.md")
PACKAGE = ["dragonscale/__init__.py", "dragonscale/physics/hardware/chips/v5e.toml"]
WHEEL = dict.fromkeys(PACKAGE, 1) | {f"dragonscale-1.0.dist-info/licenses/{name}": 1 for name in LICENCES}
SDIST = {f"src/{name}": 1 for name in PACKAGE} | dict.fromkeys(
    ("pyproject.toml", "README.md", "LICENSE", "THIRD_PARTY.md", "CHANGELOG.md"), 1
)


def test_whole_archives_have_no_faults() -> None:
    assert wheel_faults(WHEEL, PACKAGE) == []
    assert sdist_faults(SDIST, PACKAGE) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"tests/test_a.py": 1}, "tests/test_a.py does not belong"),
        ({"dragonscale/__pycache__/a.pyc": 1}, "does not belong"),
        ({"dragonscale/big.json": LARGEST_FILE + 1}, "dragonscale/big.json has"),
    ],
)
def test_what_does_not_belong_or_is_heavy_is_told(more: dict[str, int], said: str) -> None:
    assert any(said in fault for fault in wheel_faults(WHEEL | more, PACKAGE))


def test_what_is_missing_is_told() -> None:
    assert wheel_faults({name: 1 for name in WHEEL if not name.endswith("v5e.toml")}, PACKAGE) == [
        f"{PACKAGE[1]} is missing"
    ]
    bare = {name: 1 for name in WHEEL if "/licenses/" not in name}
    assert len(wheel_faults(bare, PACKAGE)) == len(LICENCES)
    assert sdist_faults({name: 1 for name in SDIST if name != "LICENSE"}, PACKAGE) == ["LICENSE is missing"]


def test_a_changelog_names_the_version_with_a_date() -> None:
    text = "## Unreleased\n\n- one\n\n## 0.2.0 — 2026-11-17\n\n## 0.1.0 — 2026-11-15\n"
    assert changelog_faults(text, "0.2.0") == []
    assert unreleased(text) == 1
    assert changelog_faults(text, "0.3.0")[0] == "it has no entry for 0.3.0"
    assert changelog_faults("## 0.2.0\n", "0.2.0") == ["0.2.0 has no date"]
    assert "order" in changelog_faults("## 0.2.0 — 2026-11-14\n## 0.1.0 — 2026-11-15\n", "0.2.0")[0]


def test_links_and_anchors(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# Title\n## A `code` heading\n")
    page = tmp_path / "page.md"
    page.write_text("[a](other.md#a-code-heading) [b](other.md#none) [c](gone.md) [d](https://x.y) `[e](code.md)`\n")
    assert [one for one in links(page.read_text()) if is_local(one)] == [
        "other.md#a-code-heading",
        "other.md#none",
        "gone.md",
    ]
    assert broken_links(page) == ["other.md#none", "gone.md"]
    assert "twice_1" in anchors("## Twice\n## Twice\n")


def test_this_checkouts_words_are_in_order() -> None:
    assert [one.faults for one in check_words()] == [(), ()]


def test_a_failed_check_fails_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    for faults, code in (((), 0), (("it broke",), 1)):
        monkeypatch.setattr("tools.check_release.checks", lambda *_, found=faults: iter([Checked("a", "b", found)]))
        assert main([], shown.append) == code
    assert any("it broke" in line for line in shown)


def test_make_and_the_extra_have_what_it_needs() -> None:
    assert "tools.check_release" in (ROOT / "Makefile").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(one.startswith("build") for one in extras["dev"])


@pytest.mark.slow
def test_wheel_and_sdist_are_built_whole(tmp_path: Path) -> None:
    pytest.importorskip("build")
    found = list(check_archives(tmp_path))
    assert [one.name for one in found] == ["wheel", "sdist"]
    assert [one.faults for one in found] == [(), ()]


def test_one_version_is_told_everywhere() -> None:
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\d[\d.]*) — (\S+)", changes, re.M)
    assert newest is not None
    assert newest[1] == version()
    assert f"version: {newest[1]}\n" in cited
    assert f"date-released: {newest[2]}\n" in cited
    assert f"Python {PYTHONS[0]} to {PYTHONS[-1]}" in (ROOT / "docs/start/install.md").read_text(encoding="utf-8")


def test_the_files_of_a_project_are_there() -> None:
    for name in ("SECURITY.md", "CITATION.cff", "LICENSE", "CONTRIBUTING.md", "docs/data-governance.md", *PEOPLE):
        assert (ROOT / name).stat().st_size > 500, name
    images = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert all(f"AS {target}" in images for target in ("web", "engine"))
    installs = re.findall(r"pip install[^&\n]*", images)
    assert len(installs) == 2
    assert all("--constraint constraints.txt" in line for line in installs)
    assert re.search(r"COPY .*\bconstraints\.txt\b", images)
    assert all(word in (ROOT / "README.md").read_text(encoding="utf-8") for word in ("uvx ", "pipx ", "dscale doctor"))


def makefile_targets() -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))


def test_the_readme_begins_with_a_clone_and_the_two_commands() -> None:
    """A sentence that says what this is, then clone, `make demo` and `make test`, before anything else."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    before, _, rest = readme.partition("```sh\n")
    assert len(before.split()) < 60
    assert rest.startswith("git clone ")
    assert first_commands(readme) == [["make", "demo"], ["make", "test"]]


def test_every_make_command_in_the_docs_is_a_target() -> None:
    """In code, at the start of a line or alone between backticks."""
    pages = [*ROOT.glob("*.md"), *(ROOT / ".github").rglob("*.*"), *(ROOT / "docs").rglob("*.md"), ROOT / ".ci" / "run"]
    named = {
        target: page.name
        for page in pages
        for target in re.findall(r"(?:^\s*(?:- run: )?|`)make ([a-z][\w-]*)", page.read_text(encoding="utf-8"), re.M)
    }
    unknown = {target: page for target, page in named.items() if target not in makefile_targets()}
    assert not unknown
    assert {"demo", "test", "web", "setup"} <= named.keys()


def test_every_version_of_the_changelog_names_its_commit() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\d[\d.]*) — \S+\n\n(?:Commit `([0-9a-f]{8})`\.)?", text, re.M)
    assert all(commit for version_name, commit in versions), versions
    assert len({commit for _, commit in versions}) == len(versions)
    shallow = ["git", "rev-parse", "--is-shallow-repository"]
    answer = subprocess.run(shallow, cwd=ROOT, capture_output=True, text=True, check=False)
    if answer.stdout.strip() != "false":
        pytest.skip("the history is not here")
    for version_name, commit in versions:
        kind = subprocess.run(["git", "cat-file", "-t", commit], cwd=ROOT, capture_output=True, text=True, check=False)
        assert kind.stdout.strip() == "commit", f"{version_name}: {commit}"


def test_actions_are_pinned_by_commit() -> None:
    """A tag can be moved to other code; the tag stands behind the commit as a comment."""
    used = [
        line.strip()
        for path in (ROOT / ".github/workflows").glob("*.yml")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]
    assert used
    assert all(re.fullmatch(r"- uses: [\w./-]+@[0-9a-f]{40}  # v\d[\d.]*", line) for line in used), used


def test_the_package_says_who_made_it_and_what_it_is_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["authors"] == [{"name": "The Dragonscale authors"}]
    assert any("Python :: 3.11" in classifier for classifier in project["classifiers"])
    assert "urls" not in project, "name an address here and in the README's clone line once there is one"
