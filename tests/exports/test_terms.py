"""The data of targets (`terms/*.toml`) loads, names only what the software has, and its rules say what they should."""

from importlib import resources
from string import Formatter
from types import SimpleNamespace

import msgspec
import pytest

from dragonscale.errors import Infeasible
from dragonscale.exports.keys import key_tables, load_keys
from dragonscale.exports.terms import Terms, load_terms

FOLDER = resources.files("dragonscale.exports") / "terms"
NAMES = sorted(file.name.removesuffix(".toml") for file in FOLDER.iterdir() if file.name.endswith(".toml"))
RULES = {"set", "of", "said", "usual", "as", "group", "choice", "by", "over", "on", "off", "among", "uneven"}


def _rows(terms: Terms) -> list[tuple[str, str, object]]:
    return [(group, key, row) for group, rows in terms.groups.items() for key, row in rows.items()]


@pytest.mark.parametrize("name", NAMES)
def test_rules_name_tables_and_groups_that_are_there(name: str) -> None:
    terms = load_terms(name)
    for group, key, row in _rows(terms):
        if isinstance(row, dict) and {"set", "of", "said", "group", "choice"} & row.keys():
            assert row.keys() <= RULES, (group, key)
            assert "by" not in row or row["by"] in terms.tables, (group, key)
            assert "group" not in row or row["group"] in terms.groups, (group, key)
            assert "choice" not in row or row["choice"] in terms.choices, (group, key)


@pytest.mark.parametrize("name", sorted({*NAMES} & key_tables()))
def test_a_flag_of_a_group_is_one_that_the_software_has(name: str) -> None:
    table = load_keys(name)
    strange = [key for _, key, _ in _rows(load_terms(name)) if key.startswith("--") and table.known(key) is None]
    assert strange == []


@pytest.mark.parametrize("name", NAMES)
def test_sentences_can_be_filled_in(name: str) -> None:
    terms = load_terms(name)
    texts = [*terms.sentences.values(), *(part for row in terms.differences.values() for part in row.values())]
    for text in texts:
        assert all(field is None or field for _, field, _, _ in Formatter().parse(text)), text


def _terms() -> Terms:
    groups = {
        "flags": {
            "--constant": 3,
            "--tensor": {"of": "plan.tensor", "over": "plan.tensor"},
            "--kind": {"of": "plan.kind", "by": "kinds"},
            "--on": {"set": True, "on": "sharded", "off": "plan.offload"},
            "--among": {"set": 1, "among": {"plan.kind": ["b"]}},
            "--every": {"said": "every", "usual": 1000, "as": "int"},
            "--seed": {"said": "seed"},
            "--inner": {"group": "inner"},
        },
        "inner": {"stage": {"of": "stage"}},
    }
    return Terms(tables={"kinds": {"a": "A"}}, groups=groups, sentences={"first": "no {x}", "second": "not {x.real}"})


def test_a_group_is_what_a_run_has() -> None:
    run = SimpleNamespace(plan=SimpleNamespace(tensor=2, kind="a", offload=0), said={"every": 7.0, "seed": 5})
    assert _terms().group("flags", run, sharded=True, stage=3) == {
        "--constant": 3,
        "--tensor": 2,
        "--kind": "A",
        "--on": True,
        "--every": 7,
        "--seed": 5,
        "--inner": {"stage": 3},
    }


def test_what_a_rule_asks_for_leaves_a_setting_out() -> None:
    run = SimpleNamespace(plan=SimpleNamespace(tensor=1, kind="a", offload=1), said={})
    assert list(_terms().group("flags", run, sharded=True, stage=0)) == ["--constant", "--kind", "--every", "--inner"]
    assert _terms().group("flags", run, sharded=True, stage=0)["--every"] == 1000


def test_the_first_refusal_that_holds_is_said() -> None:
    refusals = {"first": {"on": "wrong"}, "second": {"uneven": {"plan.tensor": "x"}}}
    terms, run = msgspec.structs.replace(_terms(), refusals=refusals), SimpleNamespace(plan=SimpleNamespace(tensor=6))
    terms.refuse(run, x=3, wrong=False)
    with pytest.raises(Infeasible, match="not 4"):
        terms.refuse(run, x=4, wrong=0)
    with pytest.raises(Infeasible, match="no 3"):
        terms.refuse(run, x=3, wrong=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_refusal_or_a_remark_has_a_sentence_and_conditions_alone(name: str) -> None:
    terms = load_terms(name)
    rows = [*terms.refusals.items(), *terms.remarks.items()]
    assert {sentence for sentence, _ in rows} <= terms.sentences.keys()
    assert {rule for _, row in rows for rule in row} <= {"over", "on", "off", "among", "uneven"}


@pytest.mark.parametrize("name", NAMES)
def test_a_choice_ends_with_a_row_that_always_holds(name: str) -> None:
    for rows in load_terms(name).choices.values():
        assert rows[-1].keys() == {"is"}
        assert {rule for row in rows for rule in row} <= {"is", "over", "on", "off", "among"}


def test_a_choice_is_the_first_row_that_holds() -> None:
    rows = [{"is": "both", "on": "a b"}, {"is": "first", "on": "a"}, {"is": "none"}]
    terms = msgspec.structs.replace(_terms(), choices={"kind": rows})
    said = ({"a": 1, "b": 1}, {"a": 1}, {"b": 1})
    assert [terms.choice("kind", one) for one in said] == ["both", "first", "none"]
