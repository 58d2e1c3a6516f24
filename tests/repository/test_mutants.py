"""The table of planted bugs fits the sources: each fragment is there once, what takes its place is still Python or
TOML, and its tests exist."""

import ast
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tools.mutants import ROOT, SOURCE, Mutant, Outcome, WrongRow, chosen, described, main, planted, read_table

ROWS = read_table()
WHERE = ("plan", "training", "serving", "collectives", "simulation", "sharding", "kernels", "exports")


def test_there_are_enough_of_them_everywhere() -> None:
    assert len(ROWS) >= 70
    for room in WHERE:
        assert sum(room in row.file.parts for row in ROWS) >= 5, room
    assert Counter(row.name for row in ROWS).most_common(1)[0][1] == 1


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_fits_the_sources(row: Mutant) -> None:
    """Otherwise follow the code: change its `module` or its fragments, and keep its rule."""
    bug = row.planted(SOURCE)
    assert "\n" not in row.before + row.after
    sound = (SOURCE / row.file).read_text(encoding="utf-8")
    if row.file.suffix == ".toml":
        assert tomllib.loads(bug) != tomllib.loads(sound)
    else:
        assert ast.dump(ast.parse(bug)) != ast.dump(ast.parse(sound))
    for test in row.tests:
        assert test.startswith("tests/")
        assert (ROOT / test).is_file()


def row_of(before: str, module: str = "package.module") -> Mutant:
    return Mutant("a-row", module, before, "b", "a rule", ("tests/training/test_step.py",))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "module.py").write_text("a = 1\nc = a + a\n", encoding="utf-8")
    return tmp_path


def test_a_bug_is_planted_where_its_fragment_is_once(source: Path) -> None:
    assert row_of("c = a").planted(source) == "a = 1\nb + a\n"
    for before, says in (("a", r"a-row: .* 'a' 3 times, not once"), ("d", "'d' 0 times")):
        with pytest.raises(WrongRow, match=says):
            row_of(before).planted(source)
    with pytest.raises(WrongRow, match=r"a-row: there is no module package\.other"):
        row_of("a", "package.other").planted(source)


def test_a_bug_is_taken_out_again(source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tools.mutants.SOURCE", source)
    copy = tmp_path / "copy"
    (copy / "package").mkdir(parents=True)
    with planted(row_of("c = a"), copy):
        assert (copy / "package" / "module.py").read_text(encoding="utf-8") == "a = 1\nb + a\n"
    assert (copy / "package" / "module.py").read_bytes() == (source / "package" / "module.py").read_bytes()


def test_some_are_chosen_by_name_or_module(capsys: pytest.CaptureFixture[str]) -> None:
    assert {row.module for row in chosen(ROWS, ["dragonscale.plan."])} <= {
        row.module for row in ROWS if ".plan." in row.module
    }
    assert chosen(ROWS, [ROWS[0].name]) == [ROWS[0]]
    assert chosen(ROWS, []) == ROWS
    assert main(["no-such-bug"]) == 2
    assert "begins with 'no-such-bug'" in capsys.readouterr().err


def test_an_outcome_says_who_noticed() -> None:
    row = row_of("a")
    assert described(Outcome(row, "tests/training/test_step.py", 2.0)).endswith("a-row")
    assert "only by tests/training" in described(Outcome(row, "tests/training", 2.0))
    assert "LIVED" in described(Outcome(row, "", 2.0))
    assert "a rule" in described(Outcome(row, "", 2.0))
