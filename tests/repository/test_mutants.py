"""The tool that plants random bugs: where a bug goes, which tests meet it, and what is said of it."""

import ast
from pathlib import Path

import pytest

from tools.mutants import Mutant, Outcome, callers_of, described, main, nearest_first, try_mutant, with_recorders

MODULE = '''"""A module."""

LIMIT = 3


def double(x):
    """Twice x."""
    return x * 2


def clamp(x): return min(x, LIMIT)
'''
TESTS = """from package.module import clamp, double


def test_double():
    assert double(2) == 4


def test_clamp():
    assert clamp(5) == 3


def test_that_fails_anyway():
    assert double(1) == 3
"""
PRODUCT = Mutant("package/module.py", "Mul_Add", 8, ["    return x * 2"], ["    return x + 2"])
CONSTANT = Mutant("package/module.py", "Number", 3, ["LIMIT = 3"], ["LIMIT = 4"])


def test_a_bug_is_planted_where_it_was_drawn() -> None:
    assert "return x + 2" in PRODUCT.planted(MODULE)
    assert PRODUCT.planted(MODULE).count("\n") == MODULE.count("\n")
    with pytest.raises(SystemExit, match="draw them again"):
        PRODUCT.planted(MODULE.replace("* 2", "* 3"))


def test_functions_record_their_calls_and_do_what_they_did() -> None:
    """A bug in a function is recorded there, one outside in every function; one-line functions too."""
    text = with_recorders(MODULE, [(0, PRODUCT), (1, CONSTANT)])
    lines = text.splitlines()
    assert "    __import__('mutant_recorder').record(0); __import__('mutant_recorder').record(1)" in lines
    assert "def clamp(x): __import__('mutant_recorder').record(1); return min(x, LIMIT)" in lines
    assert [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)] == ["double", "clamp"]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for copies, beside a repository of one module and its tests."""
    package = tmp_path / "src" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "module.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "test_module.py").write_text(TESTS, encoding="utf-8")
    monkeypatch.setattr("tools.mutants.ROOT", tmp_path)
    monkeypatch.setattr("tools.mutants.SOURCE", tmp_path / "src")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return scratch


def test_a_bug_meets_the_callers_of_its_function(scratch: Path) -> None:
    callers = callers_of([PRODUCT, CONSTANT], scratch, ["test_module.py"], 0)
    assert callers == {
        0: ["test_module.py::test_double"],
        1: ["test_module.py::test_clamp", "test_module.py::test_double"],
    }
    # 2 + 2 is 2 * 2: the test does not see this bug. The limit is seen.
    assert try_mutant(PRODUCT, callers[0], scratch, 60).result == "lived"
    assert try_mutant(CONSTANT, callers[1], scratch, 60).result == "died"
    assert try_mutant(PRODUCT, [], scratch, 60).result == "no test"


def test_tests_of_the_module_come_first() -> None:
    tests = {"tests/cli/test_a.py::test", "tests/training/test_b.py::test", "tests/training/test_memory.py::test"}
    mutant = Mutant("dragonscale/training/memory/memory.py", "", 1, [], [])
    assert [test.split("/")[-1] for test in nearest_first(mutant, tests, {})] == [
        "test_memory.py::test",
        "test_b.py::test",
        "test_a.py::test",
    ]


def test_quick_tests_come_first_and_there_is_an_end() -> None:
    seconds = {"tests/a.py::slow": 40.0, "tests/b.py::quick": 0.1, "tests/c.py::slower": 45.0}
    assert nearest_first(PRODUCT, set(seconds), seconds) == ["tests/b.py::quick", "tests/a.py::slow"]


def test_what_lived_is_shown() -> None:
    assert described(Outcome(PRODUCT, "died", 3, 1.0)).endswith("package/module.py:8")
    assert "- return x * 2\n    + return x + 2" in described(Outcome(PRODUCT, "lived", 3, 1.0))


def test_a_missing_file_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path / "none.json")])
    assert "none.json; `python -m tools.draw_mutants` writes one." in capsys.readouterr().err
