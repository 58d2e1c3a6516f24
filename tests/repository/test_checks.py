"""The repository's own rules: formatting, lint, types, layers, size of start-up."""

import hashlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def digest(*roots: str) -> str:
    """What the sources and settings of a tree are, and with which software they are looked at."""
    found = hashlib.sha256(sys.version.encode() + str(ROOT).encode())
    for path in (
        ROOT / "pyproject.toml",
        ROOT / "uv.lock",
        *sorted(one for r in roots for one in (ROOT / r).rglob("*.py")),
    ):
        found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def test_types_are_right(cache: pytest.Cache) -> None:
    """Two minutes, so a tree that was found right is not looked at again; `make lint` always looks."""
    seen = digest("src")
    if cache.get("types/right", "") != seen:
        test_tool_is_content(["basedpyright"])
        cache.set("types/right", seen)


def test_a_changed_source_is_another_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "src").mkdir()
    source = tmp_path / "src" / "one.py"
    for path in (tmp_path / "pyproject.toml", tmp_path / "uv.lock", source):
        path.write_text("a = 1\n")
    first = digest("src")
    assert digest("src") == first
    source.write_text("a = 2\n")
    second = digest("src")
    (tmp_path / "pyproject.toml").write_text("b = 1\n")
    assert len({first, second, digest("src")}) == 3


@pytest.mark.parametrize(
    "command",
    [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["lint-imports"]],
    ids=["lint", "format", "layers"],
)
def test_tool_is_content(command: list[str]) -> None:
    found = subprocess.run([str(BIN / command[0]), *command[1:]], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-2000:]


def loaded_by(statement: str) -> set[str]:
    script = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in found.stdout.splitlines()}


def test_importing_dragonscale_is_light() -> None:
    assert not loaded_by("import dragonscale") & {"jax", "sympy", "numpy"}
    names = "import dragonscale; dragonscale.load_chip; dragonscale.parse_einsum; dragonscale.load_model"
    assert not loaded_by(names) & {"jax", "sympy", "numpy"}


def test_help_starts_in_a_blink() -> None:
    """Under 0.4 CPU-seconds. Counted as modules too, which does not depend on the machine."""
    script = (
        "import time, contextlib, io, sys\n"
        "from dragonscale.faces.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()): main(['--help'])\n"
        "print(time.process_time()); print(len(sys.modules))\n"
        "assert not {'numpy', 'sympy', 'jax'} & set(sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    cpu_seconds, modules = found.stdout.split()[-2:]
    assert int(modules) < 700
    assert float(cpu_seconds) < 0.8, "twice the promised 0.4 s, to leave room for a busy machine"


def test_every_dependency_has_its_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for name in tomllib.loads(text)["project"]["dependencies"]:
        line = next(line for line in text.splitlines() if f'"{name}"' in line)
        assert "#" in line, f"{name} has no reason on its line"


def test_tests_called_slow_are_there() -> None:
    """A test that was renamed would silently be in every run again, or in none."""
    lines = [line for line in (ROOT / "tests" / "slow.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
    assert lines == sorted(set(lines))
    for line in lines:
        file, test = line.split("::")
        assert f"def {test.partition('[')[0]}(" in (ROOT / "tests" / file).read_text("utf-8"), line
