"""Set-up takes the same versions with uv and with pip: `constraints.txt` is `uv.lock`, which holds what is asked."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)", re.MULTILINE)


def locked() -> set[tuple[str, str]]:
    packages = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    return {(package["name"], package["version"]) for package in packages if "version" in package}


def test_constraints_are_the_lock() -> None:
    pinned = set(_PINNED.findall((ROOT / "constraints.txt").read_text(encoding="utf-8")))
    assert pinned
    assert pinned <= locked(), f"{sorted(pinned - locked())}: run `make lock`"


def test_the_lock_has_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *(name for extra in project["optional-dependencies"].values() for name in extra)]
    names = {re.split(r"[\[<>=!~; ]", text)[0].lower().replace("_", "-") for text in asked} - {"dragonscale"}
    missing = names - {name for name, _ in locked()}
    assert not missing, f"{sorted(missing)}: run `make lock`"
