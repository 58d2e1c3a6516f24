"""The command that adds an extra, for every way in which the package can have been installed."""

import json
import re
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from dragonscale import installing

ROOT = Path(__file__).parents[2]


class Installed:
    """A distribution of which only the record of its source is known."""

    def __init__(self, record: dict[str, object] | None) -> None:
        self.record = record

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.record is None else json.dumps(self.record)


def hint(monkeypatch: pytest.MonkeyPatch, record: dict[str, object] | None, prefix: Path | None = None) -> str:
    monkeypatch.setattr(metadata, "distributions", lambda name: [Installed(None), Installed(record)])  # noqa: ARG005
    if prefix is not None:
        monkeypatch.setattr(sys, "prefix", str(prefix))
    return installing.install_hint("web", "plot")


def test_a_clone_is_named_by_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record = {"url": tmp_path.as_uri(), "dir_info": {"editable": True}}
    assert hint(monkeypatch, record).endswith(f"install '{tmp_path}[web,plot]'")
    monkeypatch.chdir(tmp_path)
    assert hint(monkeypatch, record).endswith("install '.[web,plot]'")


def test_a_folder_with_a_quote_in_its_name_stays_one_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "anna's clone"
    folder.mkdir()
    assert shlex.split(hint(monkeypatch, {"url": folder.as_uri()}))[-1] == f"{folder}[web,plot]"


def test_a_repository_is_named_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    record = {"url": "https://example.org/dragonscale.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
    assert hint(monkeypatch, record).endswith("'dragonscale[web,plot] @ git+https://example.org/dragonscale.git'")


@pytest.mark.parametrize("record", [None, {"url": "file:///no/such/folder/dragonscale.whl"}])
def test_without_a_source_the_hint_is_that_of_a_clone(
    record: dict[str, object] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hint(monkeypatch, record) == "pip install '.[web,plot]'  # in a clone of Dragonscale"


@pytest.mark.parametrize(
    ("receipt", "installer"),
    [("uv-receipt.toml", "uv tool install --force"), ("pipx_metadata.json", "pipx install --force")],
)
def test_tools_are_installed_again_by_what_installed_them(
    receipt: str, installer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / receipt).touch()
    assert hint(monkeypatch, {"url": tmp_path.as_uri()}, tmp_path) == f"{installer} '{tmp_path}[web,plot]'"


def test_an_environment_without_pip_is_named_to_one_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(installing, "find_spec", lambda _: None)
    for uv, installer in (("uv", f"uv pip install --python {sys.executable}"), (None, "pip --python")):
        monkeypatch.setattr(installing.shutil, "which", lambda _, path=uv: path)
        assert hint(monkeypatch, {"url": tmp_path.as_uri()}).startswith(installer)


def test_no_text_tells_people_to_install_from_an_index_that_does_not_have_it() -> None:
    """Dragonscale is in no package index; `--find-links` names a folder of wheels."""
    from_index = re.compile(r"pip install[^\n`]*[ '\"]dragonscale(?:\[[\w,-]+\])?(?! @)(?:['\"`\s]|$)")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is not a git checkout")
    faults = []
    for name in listed.stdout.splitlines():
        if name.endswith((".py", ".md", ".toml", ".js", ".html", ".ipynb")) and not name.startswith("tests/"):
            lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
            faults += [
                f"{name}: {line.strip()}" for line in lines if from_index.search(line) and "--find-links" not in line
            ]
    assert not [fault for fault in faults if "changelog" not in fault.lower()]
    assert from_index.search("pip install 'dragonscale[web]'")
    assert not from_index.search('pip install "dragonscale @ git+URL"')
