"""Laws of every problem: it poses itself from any seed, its own answer is right, no trap is ever taken for right."""

import itertools
import math
import re

import pytest

from dragonscale.commands.learn import answer_text
from dragonscale.course.chapters import all_problems
from dragonscale.course.judging import judge, near, takes_for
from dragonscale.course.problem import Posed, Problem, Trap
from dragonscale.course.variants import Variant, traps_apart, variant
from dragonscale.errors import InputError
from dragonscale.physics.units import UNITS, render

PROBLEMS = all_problems()
SEEDS = range(1, 21)
"""Of each problem by default; `test_ten_thousand_variants` goes on."""


def written_out(posed: Posed, value: float) -> str:
    """A value as a careful reader types it."""
    bare = {"bytes": "B", "bytes/s": "B/s", "USD": "$", "USD/h": "$/h", "count": "", "count/s": "/s"}
    unit = bare.get(posed.dimension, posed.dimension)
    return f"${value!r}{unit[1:]}" if unit.startswith("$") else f"{value!r}{unit}"


BAD_ENGLISH = re.compile(
    r"\b[Aa] (?:a\d|h\d|mi\d|int\d|fp\d|A\d|H\d|MI\d|L\d|RTX|AMD|NVIDIA|All|MXU|MoE|8)"
    r"|\b[Aa]n (?:Reduce|[bcdgjkpqtvwz]|[BCDGJKPQTVWZ])"
    r"|(?<![\w.,])(?<![−+-] )1 (?:bytes|tokens|sequences|replicas|chips|experts|axes|hops|layers|stages|days"
    r"|GPUs|nodes)\b"
    r"|e\+\d|\d,\d{3}(?:\.\d+)?[EPT](?:FLOP|B)\b|\d{3},\d{3}[kMG]B\b|\baxis that close\b"
)


def texts(posed: Posed) -> list[str]:
    """Everything that a reader is told."""
    shown = answer_text(posed)
    return [
        posed.ask,
        *posed.hints,
        *posed.steps,
        *(trap.why for trap in posed.traps),
        *posed.options,
        shown,
    ]


def check_variant(made: Variant) -> None:
    posed, name = made.posed, f"{made.problem.id} seed {made.seed}"
    assert posed.ask.strip().endswith(("?", ".", ")")), name
    assert len(posed.hints) >= 2, name
    assert len(posed.steps) >= 2, name
    for text in texts(posed):
        assert not BAD_ENGLISH.search(text), f"{name}: {text}"
        assert not re.search(r"\bnan\b|\binf\b|(?<!P\()(?<!, )None|<function|Struct\(|Symbol\(", text), (
            f"{name}: {text}"
        )
    assert "e+" not in posed.check, f"{name}: {posed.check}"
    if posed.options:
        assert posed.answer in posed.options, name
        assert len(set(posed.options)) == len(posed.options) >= 2, name
        assert judge(posed, str(posed.answer)).right, name
        assert not any(judge(posed, one).right for one in posed.options if one != posed.answer), name
        return
    assert not isinstance(posed.answer, str), name
    assert posed.dimension in UNITS, name
    assert math.isfinite(posed.answer), name
    assert posed.answer > 0, name
    assert 0 < posed.tolerance <= 0.1, name
    assert posed.traps, f"{name} knows no usual mistake"
    assert traps_apart(posed), f"{name}: a trap is within 2.5 tolerances of the answer {posed.answer:g}"
    assert judge(posed, written_out(posed, posed.answer)).right, name
    assert judge(posed, answer_text(posed)).right, name
    if posed.whole:
        check_whole(posed, name)
    check_traps(posed, name)


def check_whole(posed: Posed, name: str) -> None:
    """Of a whole number the neighbours are wrong, and so is what lies between."""
    answer = float(posed.answer)
    assert answer == round(answer), name
    for step in (-2, -1, -0.5, 0.5, 1, 2):
        assert answer + step <= 0 or not judge(posed, repr(answer + step)).right, (
            f"{name}: {step:+g} is taken for right"
        )


def check_traps(posed: Posed, name: str) -> None:
    """Nothing within the tolerance of a trap is accepted, from either side; what is told is this trap's mistake."""
    for one, other in itertools.combinations(posed.traps, 2):
        assert not takes_for(posed, other.value, one.value), f"{name}: {one.why} and {other.why} are one value"
    for trap in posed.traps:
        assert math.isfinite(trap.value), name
        told = judge(posed, written_out(posed, trap.value)).trap if trap.value > 0 else trap
        assert told is None or told == trap or not 1e-29 < trap.value < 1e17, name
        if not 1e-29 < trap.value < 1e17 and posed.dimension == "count":
            continue
        for share in (0.0,) if posed.whole else (-1.0, -0.5, 0.0, 0.5, 1.0):
            value = trap.value * (1 + share * posed.tolerance)
            if value > 0:
                assert not judge(posed, written_out(posed, value)).right, f"{name}: {trap.why}"


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: one.id)
def test_a_problem_poses_itself(problem: Problem) -> None:
    check_variant(variant(problem))
    for seed in SEEDS:
        check_variant(variant(problem, seed))


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: one.id)
def test_variants_differ_and_a_seed_repeats_itself(problem: Problem) -> None:
    posed = [variant(problem, seed).posed for seed in range(1, 25)]
    assert len({one.ask for one in posed}) >= 4, f"{problem.id} has too few variants"
    if posed[0].options:
        places = [one.options.index(str(one.answer)) for one in posed]
        assert max(places.count(place) for place in set(places)) <= 20, f"{problem.id} nearly always has one answer"
    assert variant(problem, 7) == variant(problem, 7)


@pytest.mark.slow
def test_ten_thousand_variants() -> None:
    each = -(-10_000 // len(PROBLEMS))
    for problem in PROBLEMS:
        for seed in range(100, 100 + each):
            check_variant(variant(problem, seed))


def test_units_are_asked_for_and_rounded_answers_do() -> None:
    posed = Posed("How long?", 0.00125, "s")
    assert judge(posed, render(0.00125, "s")).right
    assert judge(posed, "about 1.26 ms").right
    assert not judge(posed, "1.3ms").right
    with pytest.raises(InputError, match="no unit"):
        judge(posed, "1.25")
    with pytest.raises(InputError, match="no answer"):
        judge(posed, "  ")


@pytest.mark.parametrize(
    ("dimension", "answer", "said"),
    [
        ("s", 1e12 / 9.2e14, "1e12 FLOP / v6e.bf16"),
        ("count", 4096.0, "2^12"),
        ("count", 1.2e6, "1.2 * 10^6"),
        ("count", 0.4, "40%"),
        ("bytes", 2 * 8192 * 28672.0, "2 bytes * 8192 * 28672"),
        ("FLOP/s", 8.2e13, "100 FLOP/byte * v5e.hbm_bandwidth"),
        ("USD/h", 24.0, "8 * $3/h"),
        ("s", 1e12 / 9.2e14, "1e12/920e12 s"),
        ("s", 11102.0, "24*1000/(3.8*2048) h"),
        ("bytes", 64 * 4096 * 4.0, "64*4096*4 B"),
        ("bytes", 1048576.0, "1048576"),
        ("count", 2.21e9, "2.21 billion"),
        ("FLOP", 4.2e22, "4.2x10^22 FLOP"),
        ("FLOP", 4.2e22, "42 ZFLOP"),
        ("s", 3 * 3600.0, "3 hours"),
        ("s", 3e-3, "3 milliseconds"),
        ("USD", 3900.0, "3.9k dollars"),
        ("count", 64.0, "64 tokens"),
    ],
)
def test_a_sum_is_worked_out(dimension: str, answer: float, said: str) -> None:
    posed = Posed("How much?", answer, dimension)
    assert judge(posed, said).right
    assert not judge(Posed("How much?", 3 * answer, dimension), said).right


def test_a_sum_of_another_kind_is_refused() -> None:
    with pytest.raises(InputError, match="in bytes"):
        judge(Posed("How long?", 1.0, "s"), "2 bytes * 3")
    with pytest.raises(InputError, match="no number"):
        judge(Posed("How many?", 1.0), "2*B")


def test_what_is_wrong_is_told() -> None:
    posed = Posed("How many bytes?", 16e9, "bytes")
    assert "decimal" in judge(posed, "16GiB").told
    assert "eight times" in judge(posed, "128GB").told
    assert "10^3" in judge(posed, "16TB").told
    assert near(100.9, 100, 0.01)


def test_whole_numbers_and_money() -> None:
    posed = Posed("How many chips?", 143.0, traps=(Trap(142.4, "Round up."),), whole=True)
    assert judge(posed, "143").right
    assert not any(judge(posed, said).right for said in ("142", "144", "142.9", "143.2"))
    assert judge(posed, "142.4").told == "No. Round up."
    assert judge(posed, "143.3").told == "No. A whole number is asked for."
    assert all(judge(Posed("What?", 3.1e6, "USD"), said).right for said in ("$3.1M", "$3.1 million", "$3100000"))


def test_options_by_word_letter_or_beginning() -> None:
    posed = Posed("Which?", "memory", options=("compute", "memory"))
    assert all(judge(posed, said).right for said in ("memory", "b", "B)", "mem", "Memory"))
    assert not judge(posed, "a").right
    with pytest.raises(InputError, match="choose one"):
        judge(posed, "network")
