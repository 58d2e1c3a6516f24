"""The software that plans are exported to, each installed from the package index in an environment of its own.

    python -m tools.software vllm            # sets up .software/vllm, says whether its own parser takes our exports
    python -m tools.software vllm --keys     # writes the names that it takes to src/dragonscale/exports/keys/vllm.json

`tests/exports/software/NAME.toml` says what to install, and `NAME.py` beside it runs inside that environment: with
`keys` it prints the table of names, with `check` it reads cases (`[{"name", "words", "files"}]`) from stdin and prints
what its parser says of each (`null`: taken; otherwise why not).
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SPECS = ROOT / "tests" / "exports" / "software"
PLACE = ROOT / ".software"
KEYS = ROOT / "src" / "dragonscale" / "exports" / "keys"


def specs() -> list[str]:
    """The software that can be set up here: what needs a source that no package has (`source` names the variable that
    says where it is) is left out without it."""
    return sorted(path.stem for path in SPECS.glob("*.toml") if _has_source(path))


def _has_source(path: Path) -> bool:
    named = tomllib.loads(path.read_text(encoding="utf-8")).get("source", "")
    return not named or bool(os.environ.get(named))


def python_for(version: str) -> str | None:
    """An interpreter of a version; None where this machine has none."""
    for found in (
        shutil.which(f"python{version}"),
        *map(str, sorted(Path.home().glob(f".pyenv/versions/{version}*/bin/python"))),
    ):
        if found and subprocess.run([found, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
            return found
    return None


def set_up(name: str) -> Path:
    """The interpreter of a software's environment, made where it is not there yet."""
    spec = tomllib.loads((SPECS / f"{name}.toml").read_text(encoding="utf-8"))
    if "environment" in spec:  # that of another software
        return set_up(spec["environment"])
    if PLACE.is_symlink():  # somebody else may be able to change what lies behind it
        raise RuntimeError(f"{PLACE.name} is a link; remove it, so that environments are made in this checkout")
    place = PLACE / name
    python, stamp = place / "bin" / "python", place / "ready"
    told = json.dumps(spec, sort_keys=True)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == told:
        return python
    base = python_for(spec.get("python", "3.11"))
    if base is None:
        raise RuntimeError(f"{name} needs Python {spec['python']}, which is not installed here")
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([base, "-m", "venv", str(place)], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if spec.get("packages"):
        subprocess.run([*install, *spec["packages"]], check=True)
    if spec.get("without_dependencies"):
        subprocess.run([*install, "--no-deps", *spec["without_dependencies"]], check=True)
    stamp.write_text(told, encoding="utf-8")
    return python


def run(name: str, mode: str, cases: list[dict[str, Any]] | None = None) -> Any:
    """What a software's checker prints."""
    done = subprocess.run(
        [str(set_up(name)), str(SPECS / f"{name}.py"), mode],
        input=json.dumps(cases or []),
        capture_output=True,
        text=True,
        check=False,
        cwd=PLACE,
    )
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout[done.stdout.index("\x02") + 1 :] if "\x02" in done.stdout else done.stdout)


def main() -> int:
    """Set up, then check or write the table of names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=specs())
    parser.add_argument("--keys", action="store_true")
    given = parser.parse_args()
    if given.keys:
        import msgspec

        from dragonscale.exports.keys import KeyTable, key_file

        table = msgspec.convert(run(given.name, "keys"), KeyTable)
        (KEYS / f"{given.name}.json").write_text(key_file(table), encoding="utf-8")
        print(f"{len(table.keys)} names of {table.software} {table.version}")
        return 0
    from tests.exports.plans import cases_for

    wrong = 0
    cases = cases_for(given.name)
    for case, verdict in zip(cases, run(given.name, "check", cases), strict=True):
        if verdict is not None:
            wrong += 1
            print(f"{case['name']}: {verdict}")
    print(f"{len(cases) - wrong} of {len(cases)} exports are taken")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
