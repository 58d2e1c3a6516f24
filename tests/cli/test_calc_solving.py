"""`dscale calc`: equations and inequalities, what has no value, and what would take too long."""

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dragonscale as ds
from dragonscale.course.calculator.evaluate import MOST_SECONDS
from dragonscale.course.calculator.reading import MOST_STATEMENTS
from dragonscale.errors import InputError


def told(text: str, solve: str = "") -> str:
    """The answers with their signs, as they are printed."""
    answers = ds.calc(text, solve=solve).answers
    return "; ".join(f"{one.name} {one.sign} {one.formula or one.text}" if one.name else one.text for one in answers)


EVERY = "Every value of x above zero makes both sides equal."
SOLVED = {
    "x^2 - 3*x + 2 > 0": "x < 1 or x > 2",
    "(x-1)*(x-2) < 0": "1 < x < 2",
    "x^2 - 3*x + 2 <= 0": "1 <= x <= 2",
    "(x-1)^2*(x-4) >= 0": "x = 1 or x >= 4",
    "1/(x-3) > 2": "3 < x < 3.5",
    "abs(x-3) < 1": "2 < x < 4",
    "6 > 2*x": "x < 3",
    "x+1 = x+1": EVERY,
    "x/x = 1": EVERY,
    "x*0 = 0": EVERY,
    "x + 1 > x": "Every value of x above zero makes the inequality true.",
    "max(x,3) = 3": "x <= 3",
    "min(x,3) = 3": "x >= 3",
    "ceil(x) = 5": "4 < x <= 5",
    "floor(x) = 5": "5 <= x < 6",
    "ceil(x/8)*8 = 64": "56 < x <= 64",
    "(x-3)^2 = 0": "x = 3",
    "max(x,1)^2 - 6*max(x,1) + 9 = 0": "x = 3",
    "(x-5)*(x-5.5) = 0": "x = 5; x = 5.5",
    "2^x = x^2": "x = 2; x = 4",
    "6/(x-3) = 2": "x = 6",
    "sqrt(x-5) = 1": "x = 6",
    "sqrt(x-5) = 0.1": "x = 5.01",
    "sqrt(x-5) = sqrt(x-5)": "x >= 5",
    "ln(x-4) = 1": "x = 6.71828",
    "(x^2-1)/(x-1) = 3": "x = 2",
    "x * v5e.hbm_bandwidth > 16GB": "x > 19.5ms = 0.0195122 s",
}


@pytest.mark.parametrize("text", SOLVED)
def test_solved(text: str) -> None:
    assert told(text) == SOLVED[text]


UNSOLVED = {
    "ceil(x) = 5.5": "was found",
    "floor(x) = 2.5": "was found",
    "x + sqrt(x) = x": "was found",
    "x/(x+1) = 1": "No value of x above zero makes",
    "(x^2-1)/(x-1) = 2": "No value of x",
    "x + 5 < 3": "makes the inequality true",
}


@pytest.mark.parametrize("text", UNSOLVED)
def test_no_solution_is_made_up(text: str) -> None:
    with pytest.raises(InputError, match=UNSOLVED[text]):
        ds.calc(text)


def test_a_formula_says_on_which_side_an_inequality_holds() -> None:
    assert told("b/x < a", "x") == "x > b/a"
    assert told("a - x > b", "x") == "x < a - b"
    assert told("a*x^2 > b", "x") == "x > sqrt(b)/sqrt(a)"
    assert told("x^2 - 2*x*y + y^2 = 0", "x") == "x = y"
    assert told("y + 1e200 = log2(x)", "y").startswith("y = ")  # no power of 1e200 is worked out on the way
    with pytest.raises(InputError, match="cannot be solved"):
        ds.calc("round(x) + y + abs(x-2) + min(x,y) + 2^x >= -(x-5)^2/ln(x)")  # true of some x is not true of all
    with pytest.raises(InputError, match="depends on the other letters"):
        ds.calc("a*x - b*x > c", solve="x")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=4, unique=True), st.sampled_from(["", "*max(x, 0.001)"]))
def test_roots_are_those_that_were_put_in(roots: list[int], factor: str) -> None:
    """Exactly as a polynomial; by trying where `max` stands in it, as long as roots are apart."""
    if factor and any(math.isclose(one, two, rel_tol=0.3) for one in roots for two in roots if one != two):
        return
    text = "*".join(f"(x - {root}/8)" for root in roots)
    found = [one.value for one in ds.calc(f"{text}{factor} = 0").answers]
    assert found == pytest.approx(sorted(root / 8 for root in roots), rel=1e-7)


NO_VALUE = {
    "1/(x-x)": "divides by zero",
    "x/(0*x)": "divides by zero",
    "ln(x-x)": "not a number",
    "ln(0*x)": "not a number",
    "(x-x)^-1": "not a number",
    "round(x, y)": "whole number of digits",
    "round(2.5, 0.5)": "whole number of digits",
    "round(x, 2)": "whole numbers only",
    "x=[]; x": "nothing between its brackets",
    "()": "nothing between its brackets",
}


@pytest.mark.parametrize("text", NO_VALUE)
def test_what_has_no_value_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(InputError, match=NO_VALUE[text]):
        ds.calc(text)


def chain(link: str, count: int, last: str) -> str:
    """Letters each given a value by the next."""
    return ";".join(f"a{place}={link.replace('a', f'a{place + 1}')}" for place in range(count)) + f";a{count}={last};a0"


LONG = {
    "growing sums": (chain("a+1/a", 20, "x+y"), "too long"),
    "growing powers": (chain("a+a^2", 30, "x"), "too long"),
    "growing lists": (chain("(a,a)", 30, "1"), "more than 256 values"),
    "statements": (";".join(f"b{place}=1" for place in range(MOST_STATEMENTS + 1)), "statements"),
    "assignments": (chain("a", 3000, "1"), "characters"),
    "words of all statements": ("+".join("1" * 200) + ";" + "+".join("1" * 200), "words"),
    "searches": (
        "B=[" + ", ".join(map(str, range(1, 65))) + "]; all_reduce(x, v5e:4x4) + max(x, 1)*1s = B*2s",
        "too long",
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_one_calculation_is_bounded(name: str) -> None:
    text, sentence = LONG[name]
    ds.calc("x*y")  # loads SymPy
    started = time.thread_time()
    with pytest.raises(InputError, match=sentence):
        ds.calc(text)
    assert time.thread_time() - started < 2 * MOST_SECONDS


def test_a_long_sum_is_no_deep_one() -> None:
    assert ds.calc("1" + "+1" * 290).value == 291
    assert ds.calc(chain("-(a)+1", 60, "1")).value == 1


OUT_OF_RANGE = {
    "largest_model(1.5, 1.5)": "takes a chip for chip, and is given '1.5'",
    "run_seconds(v5e, 1, 1)": "takes no chip for flops",
    "hops(v5e:4x4, 1, 2)": "takes several numbers",
    "critical_batch(v5e, weights=3)": "takes a word for weights",
    "binding_tier('all_gather', v5e:4x4)": "a slice of GPUs",
    "least_tokens(fsdp, (D=8192), v5p:4x4x4)": "lacks a size for 'F'",
    "prompt_wait(200ms, 1.5)": "not below 1",
    "goodput(1e6, 1/day, 10min, 10min)": "No time is left",
    "time_with_failures(1 day, -2)": "no negative share",
    "split_tokens(v5p, 32768, 256, 16)": "at any batch: 12.9 is the most",
    "bus_bandwidth(max, 8, 64, 1)": "no collective 'max'",
    "counterpart(SM, source=npu)": "no kind of chip called 'npu'",
    "resident_warps(v5p, 32)": "no registers that warps share",
    "transfer_time(1e18, v5p:4x4x4, (x, x, 1), (0, 1, 1))": "give the letters values",
    "tokens_per_loop(4096, 4096)": "too large",
    "h100.ici_lnk": "h100 has no ici_lnk",
}


@pytest.mark.parametrize("text", OUT_OF_RANGE)
def test_what_a_function_does_not_take_is_told(text: str) -> None:
    with pytest.raises(InputError) as error:
        ds.calc(text)
    assert OUT_OF_RANGE[text] in str(error.value)
    assert "object" not in str(error.value)
    assert "ici_axis" not in str(error.value)


def test_a_fraction_before_a_unit_is_said_to_be_a_division() -> None:
    found = ds.calc("1/2 GB")
    assert found.value == 5e-10
    assert "divides by 2 GB" in found.notes_beside[0]
    assert not ds.calc("10*70e9/h100.hbm").notes_beside
