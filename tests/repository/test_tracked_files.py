"""What git tracks is files of this project: no links, and no paths of the machine that somebody worked on."""

import re
import subprocess
from pathlib import Path

import pytest

from tools import software

ROOT = Path(__file__).parents[2]
MACHINE_PATH = re.compile(
    r"(?<![\w.~$}/:-])/(?:root|home|Users|work|workspace|mnt|tmp|private|var/folders)/(?!me/)[\w.-]+(?:/[\w.-]+)*"
)
"""A path below somebody's home or a temporary folder; `/home/me/` is what examples say."""
ALLOWED = {
    "Dockerfile": "the home folder inside the image",
    "src/dragonscale/exports/engines/sgl_jax.py": "the cache folder that the engine's own documentation names",
    "tests/exports/test_vllm.py": "a published docker command",
    "tests/repository/test_tracked_files.py": "the cases below",
}
"""Files that may name such a path, with the reason."""
OTHERS = ("tests/exports/published/", "src/dragonscale/exports/keys/")
"""Folders with scripts and defaults of other software, as it publishes them."""


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("this is not a git checkout")
    return done.stdout


def tracked_links(listing: str) -> list[str]:
    """The symbolic links in the output of `git ls-files --stage`: their mode is 120000."""
    return [line.partition("\t")[2] for line in listing.splitlines() if line.startswith("120000 ")]


def test_no_link_is_tracked() -> None:
    assert tracked_links(git("ls-files", "--stage")) == []


def test_a_link_is_seen() -> None:
    listing = "100644 abc 0\tREADME.md\n120000 def 0\t.software\n"
    assert tracked_links(listing) == [".software"]


@pytest.mark.parametrize("name", [".software", ".venv", "site", "out"])
def test_what_is_made_here_is_ignored_as_a_folder_and_as_a_link(name: str, tmp_path: Path) -> None:
    """A pattern that ends in a slash does not match a link."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text((ROOT / ".gitignore").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / name).symlink_to(tmp_path.parent)
    ignored = ["git", "check-ignore", "--quiet", name]
    assert subprocess.run(ignored, cwd=tmp_path, check=False).returncode == 0
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    (tmp_path / name / "file").write_text("x", encoding="utf-8")
    assert subprocess.run([*ignored[:-1], f"{name}/file"], cwd=tmp_path, check=False).returncode == 0


def test_no_file_names_a_path_of_one_machine() -> None:
    faults = []
    for name in git("ls-files").splitlines():
        path = ROOT / name
        if name in ALLOWED or name.startswith(OTHERS) or not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # pictures and packed data
        faults += [f"{name}: {match[0]}" for match in MACHINE_PATH.finditer(text)]
    assert not faults, faults


@pytest.mark.parametrize(
    ("text", "is_machine_path"),
    [
        ("PLACE = '/tmp/software/bin'", True),
        ("run /root/.venv/bin/python", True),
        ("[page](/home/anna/notes.md)", True),
        ("https://example.org/home/page", False),
        ("section_of_source('/home/me/train.py:10')", False),
        ("$HOME/work/run and ./tmp/run", False),
    ],
)
def test_machine_paths_are_told_from_others(text: str, is_machine_path: bool) -> None:
    assert bool(MACHINE_PATH.search(text)) is is_machine_path


def test_environments_of_other_software_are_not_made_behind_a_link(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / ".software").symlink_to(tmp_path / "shared")
    monkeypatch.setattr(software, "PLACE", tmp_path / ".software")
    with pytest.raises(RuntimeError, match="is a link"):
        software.set_up("vllm")
    assert not list((tmp_path / "shared").iterdir())
