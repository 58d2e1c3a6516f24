"""Every number that a view shows opens a derivation: its value is there, its formula gives it, and it says where it
comes from."""

import ast
import math
import operator
from collections.abc import Iterator
from typing import Any

import pytest

from dragonscale.commands.explain.formulas import letters_in
from dragonscale.commands.explain.numbers.number_table import number_tables
from dragonscale.web.answers import answer
from dragonscale.web.maths import math_tree

TRAINED = {
    "model": "llama3-8b",
    "on": "h100:8",
    "batch": "64seq",
    "seq": "4096",
    "tokens": "1T",
    "plan": "fsdp4 tp2",
    "alone": True,
}
SERVED = {
    "model": "llama3-8b",
    "on": "h100:2",
    "prompt": "1024",
    "output": "128",
    "plan": "tp2",
    "batch": "16",
    "rate": "20/s",
}
FEW: list[tuple[str, dict[str, Any], list[str]]] = [
    ("train", TRAINED, ["answer"]),
    ("serve", SERVED, ["answer"]),
    ("roofline", {"expression": "bf16[512,8192] @ bf16[8192,28672]", "on": "h100"}, []),
    ("chips", {"name": "h100"}, ["chip", "table"]),
    ("models", {"model": "llama3-8b"}, ["model", "lengths"]),
]
MANY: list[tuple[str, dict[str, Any], list[str]]] = [
    ("train", TRAINED, ["time", "memory", "mesh"]),
    ("serve", SERVED, ["time", "memory", "mesh"]),
    ("collective", {"kind": "all_gather", "on": "v5e:8x16", "axis": "Y", "size": "34MB"}, []),
    ("train", {"model": "llama3-70b", "on": "v5p:8x16x16", "batch": "4Mi", "seq": "8192", "tokens": "15T"}, []),
    (
        "train",
        {"model": "mixtral-8x7b", "on": "h100:64", "batch": "256seq", "seq": "4096", "plan": "tp2 ep8 pp2"},
        ["answer", "time", "memory", "mesh", "roofline", "against"],
    ),
    ("serve", {"model": "llama3-70b", "on": "h100:8", "ttft": "500ms", "tpot": "40ms"}, []),
    (
        "serve",
        {"model": "deepseek-v3", "on": "h200:16", "plan": "tp8 dp2 ep16"},
        ["answer", "time", "memory", "mesh", "roofline"],
    ),
    (
        "shard",
        {"expression": "A[I_X, J] @ B[J_X, K] -> C[I, K]", "mesh": "X=4", "on": "v5e", "sizes": "I=1024,J=8192,K=8192"},
        [],
    ),
    ("simulate", {"model": "llama3-8b", "on": "h100:1", "rate": "4/s", "requests": "200"}, []),
]


def asked(request: dict[str, Any]) -> list[dict[str, Any]]:
    heard: list[dict[str, Any]] = []
    answer(request, heard.append)
    assert "error" not in heard[-1], (request, heard[-1])
    return heard


def amounts(data: Any) -> Iterator[dict[str, Any]]:
    if isinstance(data, dict):
        if "value" in data and "unit" in data:
            yield data
        data = list(data.values())
    for one in data if isinstance(data, list) else ():
        yield from amounts(one)


def derivation(
    view: str, fields: dict[str, Any], number: str, panels: tuple[str, ...] = ("facts", "formula")
) -> dict[str, Any]:
    found = asked({"view": "why", "of": view, "fields": fields, "number": number, "panels": list(panels)})
    return {one["panel"]: one["data"] for one in found if "panel" in one}


def near(one: float, other: float, part: float = 6e-3) -> bool:
    return math.isclose(one, other, rel_tol=part, abs_tol=1e-30)


def check(view: str, fields: dict[str, Any], panels: list[str]) -> int:
    """Derive every number of some panels; returns how many ids there were."""
    shown: dict[str, list[dict[str, Any]]] = {}
    for one in amounts(asked({"view": view, "fields": fields, "panels": panels})):
        if one.get("why"):
            shown.setdefault(one["why"], []).append(one)
    for why, numbers in shown.items():
        found = derivation(view, fields, why)
        facts, formula = found["facts"], found["formula"]
        values = [one["value"] for one in amounts(facts) if one["value"] is not None]
        values += [line["value_si"] for line in formula["formulas"] if line["value_si"] is not None]
        for one in numbers:
            assert any(near(one["value"], value) for value in values), (view, why, one, facts["number"])
        assert all(facts[part] for part in ("title", "sentence", "sources", "docs")), (view, why)
        for line in formula["formulas"]:
            assert line["math"] is not None, (why, line["text"])
            if line["numbers"] and line["value_si"]:
                assert near(evaluated(line["numbers"]), line["value_si"], 2e-2), (view, why, line)
    return len(shown)


@pytest.mark.parametrize(("view", "fields", "panels"), FEW, ids=[one[0] for one in FEW])
def test_every_number_opens_its_derivation(view: str, fields: dict[str, Any], panels: list[str]) -> None:
    assert check(view, fields, panels) > 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("view", "fields", "panels"), MANY, ids=[f"{one[0]} {one[1].get('model', '')}" for one in MANY]
)
def test_every_number_of_larger_questions_opens_its_derivation(
    view: str, fields: dict[str, Any], panels: list[str]
) -> None:
    assert check(view, fields, panels) > 5


def test_parts_add_up_and_letters_have_sources() -> None:
    found = derivation("train", TRAINED, "step_s", ("facts", "formula", "crossovers"))
    parts = found["facts"]["steps"][0]
    assert near(sum(one["number"]["value"] for one in parts["rows"]), parts["total"]["value"], 1e-9)
    letters = {one["letter"]: one for one in found["formula"]["letters"]}
    assert letters["tensor"]["from"] == "the plan"
    assert "NVIDIA H100" in letters["C"]["from"]
    assert letters["D"]["value"] == "4,096"
    assert "llama3-8b" in letters["D"]["from"]
    assert any("batch" in text for text in found["crossovers"]["crossovers"])
    assert "published" in found["facts"]["error"]
    memory = derivation("serve", SERVED, "ttft_s")["facts"]["steps"][0]
    assert near(sum(one["number"]["value"] for one in memory["rows"]), memory["total"]["value"], 1e-6)


def test_a_short_formula_tells_its_letters() -> None:
    """A formula over other numbers of the answer says what each is, in its unit, and where it comes from."""
    formula = derivation("serve", SERVED, "requests_per_s")["formula"]
    letters = {one["letter"]: one for one in formula["letters"]}
    assert set(letters) == {"n_copies", "B", "TTFT", "O", "TPOT"}
    assert letters["TTFT"]["value"].endswith("ms")
    assert all(one["what"] and one["from"] for one in letters.values())


def test_a_fitted_constant_is_a_letter_with_its_source() -> None:
    formula = derivation("train", TRAINED, "memory:fragmentation")["formula"]
    [letter] = [one for one in formula["letters"] if one["letter"] == "memory_fragmentation"]
    assert letter["value"] == "0.02"
    assert "megatron-lm" in letter["what"]
    assert letter["from"]


@pytest.mark.parametrize("view", ["train", "serve", "simulate", "operation", "shard", "chip", "model"])
def test_every_formula_of_the_table_has_its_letters(view: str) -> None:
    table = number_tables()[view]
    assert table.numbers
    for name, spec in table.numbers.items():
        for one in spec.formulas:
            assert set(letters_in(one.formula)) <= set(table.letters), (view, name, one.formula)
            assert math_tree(one.formula) is not None, (view, name)


def test_a_number_of_another_plan_is_derived_for_that_plan() -> None:
    other = derivation("train", TRAINED, "at?plan=fsdp8|step_s", ("facts",))["facts"]
    own = derivation("train", {**TRAINED, "plan": "fsdp8"}, "step_s", ("facts",))["facts"]
    assert (
        other["number"]["value"]
        == own["number"]["value"]
        != derivation("train", TRAINED, "step_s", ("facts",))["facts"]["number"]["value"]
    )


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"of": "train", "fields": TRAINED, "number": "steps"}, "There is no number of a training plan called 'steps'"),
        ({"of": "train", "fields": TRAINED, "number": "term:mlp"}, "There is no term of this plan called 'mlp'"),
        ({"of": "nothing", "fields": {}, "number": "x"}, "There is no view whose numbers are derived called 'nothing'"),
        ({"of": "train", "fields": TRAINED, "number": ""}, "names no number"),
        ({"of": "chips", "fields": {"name": "h100"}, "number": "chip:nothing"}, "There is no fact of h100"),
    ],
)
def test_unknown_numbers_are_said(request_: dict[str, Any], said: str) -> None:
    heard: list[dict[str, Any]] = []
    answer({"view": "why", "panels": ["facts"], **request_}, heard.append)
    assert heard[-1]["error"]["kind"] == "input"
    assert said in heard[-1]["error"]["text"]


def test_formulas_are_trees_of_mathml_alone() -> None:
    tree = math_tree("Max(a*b^2/(c_1 + 1e+12), floor(x) - 3)")
    assert tree is not None

    def names(one: Any) -> set[str]:
        return {one[0]} | {name for inner in one[1:] if isinstance(inner, list) for name in names(inner)}

    assert names(tree) <= {"mrow", "mfrac", "msup", "msub", "mi", "mn", "mo"}
    assert math_tree("<script>alert(1)</script>") is None
    assert math_tree("a" * 9999) is None


_DO = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_CALLS: dict[str, Any] = {
    "Max": max,
    "Min": min,
    "ceiling": math.ceil,
    "floor": math.floor,
    "log": math.log,
    "sqrt": math.sqrt,
    "exp": math.exp,
}


def evaluated(text: str) -> float:
    """The value of a formula with numbers in."""

    def value(node: Any) -> float:
        if isinstance(node, ast.BinOp):
            return _DO[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp):
            return -value(node.operand)
        if isinstance(node, ast.Call):
            return float(_CALLS[node.func.id](*map(value, node.args)))  # pyright: ignore[reportAttributeAccessIssue]
        return float(node.value)

    return value(ast.parse(text.replace("^", "**"), mode="eval").body)
