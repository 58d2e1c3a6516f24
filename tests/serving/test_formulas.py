"""One iteration on floats, arrays and formulas: the same FLOPs, bytes, bounds and memory, line by line."""

import json
from pathlib import Path

import numpy
import pytest
import sympy

from dragonscale.commands.serve.answer import answer
from dragonscale.commands.serve.ask_serve import save_iterations
from dragonscale.commands.serve.serve_question import ServeQuestion, read_question
from dragonscale.physics.formula import expression
from dragonscale.plan.letters import Letters
from dragonscale.serving.iteration.capacity import capacity
from dragonscale.serving.iteration.deployment import deploy
from dragonscale.serving.iteration.formulas import lettered_iteration
from dragonscale.serving.iteration.iteration import Iteration, decode, prefill
from dragonscale.serving.iteration.ledger import iteration_ledger
from dragonscale.serving.iteration.phases import iteration_cost

CASES = {
    "grouped queries on a torus": ("llama3-8b", "v5e:2x2", "tensor=4"),
    "int8, fewer KV heads than chips": ("llama3-70b", "v5e:4x4", "weights=int8,compute=int8,kv=int8"),
    "fp8 under switches": ("llama3-70b", "h100:8", "weights=fp8,compute=fp8,kv=fp8"),
    "int8 on the wire": ("llama3-70b", "v5e:4x4", "weights=int8,compute=int8,kv=int8,wire=int8"),
    "latent attention and experts": (
        "deepseek-v3",
        "h100:32",
        "data=4,tensor=8,expert=32,weights=fp8,compute=fp8_block",
    ),
    "experts gathered": ("mixtral-8x7b", "h100:8", "tensor=4,data=2,expert=2"),
    "sliding windows": ("gemma3-27b", "v6e:2x4", "tensor=8"),
    "2D weight-stationary": ("llama3-70b", "v5p:4x4x4", "tensor=16,width=4"),
    "a cache along the sequence": ("llama3-70b", "h100:16", "tensor=16,spread=sequence"),
    "a pipeline": ("llama3-70b", "h100:16", "tensor=8,pipe=2"),
    "pods": ("llama3-8b", "v5e:16x16*2", "tensor=32,data=16"),
}
QUANTITIES = ("times", "flops", "hbm_bytes", "wire_bytes", "bound_s", "compute_s", "memory_s")


STEPS = {
    "decode": decode(64, 2000),
    "prefill": prefill(4096, 2, 128),
    "both": Iteration(64, 2000, 1, 2, 512, 0),
}


def written_out(number, letters: Letters) -> float:
    """The number that a formula's expression gives, which is no other than its value."""
    values = {sympy.Symbol(name, positive=True): value for name, value in letters.values.items()}
    return float(sympy.sympify(expression(number)).subs(values))


@pytest.mark.parametrize("phase", STEPS)
@pytest.mark.parametrize("case", CASES)
def test_every_line_is_its_formula(case: str, phase: str) -> None:
    real, letters = deploy(*CASES[case]), Letters()
    formulas = iteration_cost(*lettered_iteration(real, STEPS[phase], letters))
    floats = iteration_cost(real, STEPS[phase])
    ran = [line for line in floats.lines if numpy.all(line.issued > 0)]
    assert [(line.what, line.kind) for line in formulas.lines] == [(line.what, line.kind) for line in ran]
    for formula, number in zip(formulas.lines, ran, strict=True):
        for name in QUANTITIES:
            value = float(numpy.ravel(getattr(number, name))[0])
            found = getattr(formula, name)
            assert float(found) == pytest.approx(value, rel=1e-9), (formula.what, name)
            assert written_out(found, letters) == pytest.approx(value, rel=1e-9), (formula.what, name)
    for name in ("compute", "memory", "lower", "roofline", "upper"):
        value = float(numpy.ravel(getattr(floats, name))[0])
        assert float(getattr(formulas, name)) == pytest.approx(value, rel=1e-9), name


@pytest.mark.parametrize("case", CASES)
def test_memory_is_its_formula(case: str) -> None:
    real, letters = deploy(*CASES[case]), Letters()
    formulas, numbers = capacity(lettered_iteration(real, STEPS["decode"], letters)[0]), capacity(real)
    for name in ("weights", "working", "per_token", "fixed", "usable", "cache"):
        value = float(numpy.ravel(getattr(numbers, name))[0])
        assert written_out(getattr(formulas, name), letters) == pytest.approx(value, rel=1e-9, abs=1e-3), name


@pytest.mark.parametrize("letter", ["B", "S", "tensor", "D"])
def test_a_letter_given_other_numbers_is_an_array_of_them(letter: str) -> None:
    """Crossovers are solved over arrays: these are the formulas, each with its own number."""
    real, values = deploy(*CASES["grouped queries on a torus"]), numpy.array([5.0, 8.0, 300.0])
    many = iteration_cost(*lettered_iteration(real, STEPS["decode"], Letters({}, {letter: values}, plain=True)))
    for place, value in enumerate(values):
        one = iteration_cost(*lettered_iteration(real, STEPS["decode"], Letters({}, {letter: value})))
        for name in ("compute", "memory", "lower", "upper"):
            found = numpy.broadcast_to(getattr(many, name), values.shape)[place]
            assert found == pytest.approx(float(getattr(one, name)), rel=1e-12), name


def test_arrays_are_their_floats() -> None:
    real = deploy("llama3-70b", "h100:8", "weights=fp8,compute=fp8,kv=fp8")
    batches = numpy.array([1.0, 64.0, 500.0])
    many = iteration_cost(real, decode(batches, 2000))
    for place, batch in enumerate(batches):
        one = iteration_cost(real, decode(float(batch), 2000))
        for name in ("compute", "memory", "lower", "expected"):
            assert getattr(many, name)[place] == pytest.approx(float(getattr(one, name)[0]), rel=1e-12), name


@pytest.mark.parametrize("step", [decode(64, 2000), prefill(2048, 4), Iteration(64, 2000, 1, 2, 512, 0)])
@pytest.mark.parametrize("case", ["fp8 under switches", "latent attention and experts", "sliding windows"])
def test_what_is_waited_for_adds_up_to_the_iteration(case: str, step: Iteration) -> None:
    real = deploy(*CASES[case], "trtllm")
    ledger = iteration_ledger(real, step)
    assert ledger.total("exposed_s") == pytest.approx(float(iteration_cost(real, step).expected[0]), rel=1e-9)
    assert ledger.hbm_bytes == pytest.approx(capacity(real).hbm, rel=1e-9)
    assert all(line.expected_s >= line.bound_s * (1 - 1e-12) for line in ledger.lines if not line.moves)


def test_a_timeline_is_as_long_as_its_iterations(tmp_path: Path) -> None:
    asked = read_question(ServeQuestion("llama3-8b", "h100:2", plan="tensor=2", batch="64", engine="vllm"))
    report = answer(asked)
    save_iterations(report.came_from(asked, []), str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    length = {event["name"]: event["dur"] / 1e6 for event in events if event["name"] in ("prefill", "decode")}
    best = report.configs[0]
    assert length["decode"] == pytest.approx(best.decode_step_s, rel=1e-9)
    assert length["prefill"] == pytest.approx(sum(term.expected_s for term in best.prefill_terms), rel=1e-9)
