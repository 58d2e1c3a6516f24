"""`dscale calc`: values, units, names, equations, and what is refused."""

import inspect
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dragonscale as ds
from dragonscale.course.calculator import functions
from dragonscale.course.calculator.arguments import taken_as, taken_unit
from dragonscale.course.calculator.lexemes import LONGEST
from dragonscale.course.calculator.measure import Measure
from dragonscale.course.calculator.tables import UNITS_OF_FORMS
from dragonscale.errors import InputError
from dragonscale.faces.cli import main
from tools.list_calc_words import PAGE, page

VALUES = {
    "(2^22) FLOP": (2.0**22, "FLOP"),
    "H=128; K=8; L=80; 4*H*K*L bytes": (327680, "bytes"),
    "1e12 FLOP / v6e.bf16": (1e12 / 9.2e14, "s"),
    "1e12 / v6e.bf16": (1e12 / 9.2e14, "s"),
    "16GiB": (2.0**34, "bytes"),
    "70B": (70e9, ""),
    "4Mi tokens": (2.0**22, ""),
    "8,192 * 2": (16384, ""),
    "40%": (0.4, ""),
    "400Gbps": (50e9, "bytes/s"),
    "197TFLOPS / 820GB/s": (197e12 / 820e9, "FLOP/byte"),
    "$1.2/h * 2 days": (57.6, "USD"),
    "v5e.price": (1.2, "USD/h"),
    "700W * 2h": (700 * 7200, "J"),
    "2·3×4^2**1": (96, ""),
    "-2^2": (-4, ""),
    "2^-2": (0.25, ""),
    "3²": (9, ""),
    "padded((1024, 1024, 384), v6e).useful": (0.75, ""),
    "padded((64, 100), (128, 128))[1]": (6400 / 16384, ""),
    "best_two_axes(32, 8192, 32768, 512, v5p.ici_axis).x": (8, ""),
    "best_two_axes(32, 8192, 32768, 512, v5p.ici_axis).seconds": (8 * 32 * 512 / 1.8e11, "s"),
    "eccentricity(v5e:8x16)": (15, ""),
    "model_flops(1, 1, recomputed=1)": (8, "FLOP"),
    "fat_tree(h100, switch_for(h100), 1024).tiers[1].total": (32, ""),
    "2^3 GB": (8e9, "bytes"),
    "4.2e11*2^22 FLOP / v5p.bf16": (4.2e11 * 2**22 / 4.59e14, "s"),
    "max(A, 3)*B = 2*B*A": (1.5, ""),
    "sqrt(16 bytes * 4 bytes)": (8, "bytes"),
    "ceil(700GB / h100.hbm)": (9, ""),
    "10*70e9/h100.hbm": (8.75, ""),
    "v5e.ici_axis / v5e.ici_link": (2, ""),
    "v5p:8x16x16.chips - v5p:8x16x16.hosts": (2048 - 512, ""),
    "v5p:16x20x28*2.chips": (16 * 20 * 28 * 2, ""),
    "h100:64.hbm": (64 * 80e9, "bytes"),
    "v5p-8.chips": (4, ""),
    "llama3-70b.D*llama3-70b.F": (8192 * 28672, ""),
    "llama3-70b.params-llama3-70b.active": (128256 * 8192, ""),
    "llama3-70b.kv_bytes_per_token": (2 * 80 * 8 * 128 * 2, "bytes"),
    "kv_bytes(llama3-70b, 8192, int8)": (80 * 2 * 8 * 128 * 8192, "bytes"),
    "v5e.mxu[0] * v5e.mxu[1]": (16384, ""),
    "bytes(int4) * 70e9": (35e9, "bytes"),
    "kv_bytes(llama2-13b?num_key_value_heads=8)": (2 * 2 * 40 * 8 * 128, "bytes"),
    "llama2-13b?num_hidden_layers=20&num_key_value_heads=8.kv_bytes_per_token": (2 * 2 * 20 * 8 * 128, "bytes"),
    "B=64; D=2*B; B*D": (64 * 128, ""),
    "B*D; D=2*B; B=64": (64 * 128, ""),
    "critical_batch(v5e)": (197e12 / 820e9, ""),
    "critical_batch(chip=v5e, weights=int8)": (197e12 / 820e9 / 2, ""),
    "run_cost(8, 2h, $4/h)": (64, "USD"),
    "transfer_time(9MB, v5e:4x4, (0,0), (3,3)).bandwidth": (1e-4, "s"),
    "all_gather(34MB, v5e:8x16, Y)": (34e6 / 90e9, "s"),
    "bf16[2048, 8192] + int8[B]; B=1Ki": (2048 * 8192 * 2 + 1024, "bytes"),
    "B=[1, 8]; 2*B": (16, ""),
    "B=[1, 8]; C=[2, 3]; B*C": (24, ""),
    "params(model(D=4096, F=14336, L=32, N=32, V=128256, K=8))": (8030261248, ""),
    "model(D=4096, F=14336, L=32, N=32, V=128256, K=8).D": (4096, ""),
    "tiled_matmul_cost(512, 512, 512, (128, 128, 128)).intensity": (512 / 9, "FLOP/byte"),
    "12*B*T^2*N*H = 24*B*T*D*N*H; D=4096": (8192, ""),
    "max(3ms, 2us, 0)": (3e-3, "s"),
    "x * v5e.hbm_bandwidth = 16GB": (16e9 / 820e9, "s"),
    "2*B*D*F/v5e.bf16 = 2*D*F/v5e.hbm_bandwidth": (197e12 / 820e9, ""),
    "max(B, 100) = 250": (250, ""),
    "critical_batch(v5e) * x = 480.5": (480.5 * 820e9 / 197e12, ""),
}


@pytest.mark.parametrize("text", VALUES)
def test_value_and_unit(text: str) -> None:
    found, (value, unit) = ds.calc(text), VALUES[text]
    assert found.value == pytest.approx(value, rel=1e-9)
    assert found.unit == unit


REFUSED = {
    "a100.fp8": "has no fp8 matmul; peak(a100, fp8)",
    "3GB = 1s": "over a rate they are a time: 3GB / h100.hbm_bandwidth",
    "factorial(5)": "`dscale calc --find factorial` searches by words",
    "goodput": "goodput is a function; write goodput(hosts, rate",
    "3 bytes + 2s": "adds bytes and s",
    "16GB + 3": "say what the number counts",
    "v5e.bf61": "did you mean bf16",
    "v5x.bf16": "did you mean v5",
    "llama3-70b.params.D": "llama3-70b has no params.D",
    "crit_batch(v5e)": "did you mean critical_batch",
    "critical_batch(v5e, weigths=int8)": "did you mean 'weights'",
    "critical_batch()": "lacks chip",
    "run_seconds(1GB, 8, v5e.bf16)": "takes FLOP for flops",
    "as_matrix(1, 2, 3)": "Python only",
    "9**9**9": "too large",
    "1/0": "divides by zero",
    "1e300*1e300": "too large",
    "-1e308": "too large",
    "1e999": "too large",
    "6ND": "write * between",
    "model_flops(1, 1, recomputed=25)": "from 0 (nothing) to 1",
    "padded((1, 2), (8, 8, 8))": "do not fit",
    "2^(3 s)": "no unit",
    "8192 B": "write 8192 bytes",
    "163840B / v5e.hbm_bandwidth": "write 163840 bytes",
    "decode_times((1, 8), 1GB, llama3-8b, 1, h100)": "write B=[1, 8]",
    "2 3": "operator",
    "(1": "ends where",
    "v5e": "is a chip",
    "llama3-70b + 1": "is a model",
    "bf16 * 2": "bytes(bf16)",
    "x = x + 1": "needs x itself",
    "B=1; B=2; B": "twice",
    "x + 5 = 3": "No value of x",
    "sqrt(-1)": "not a number",
    "log2(8 bytes)": "no unit",
    "max(1,000, 3)": "begins with a zero",
    "decode_times(8, 1GB, llama3-8b, 1, h100) + 1": "several parts",
    "decode_times(8, 1GB, llama3-8b, 1, h100).lowr": "did you mean 'lower'",
    "__import__('os')": "no function",
    "(1).__class__": "one value",
    "@": "cannot be read",
    "": "Give an expression",
    "best_drafts(1s, 0.1s, 0.9, most=1e6)": "the most",
    "B=[1, 2]; C=[" + "1, " * 40 + "1]; B*C": "combinations",
    "(a+b+c+d)^9": "too long to write out",
    "+".join(f"1/({letter}+1)" for letter in "abcdefghij"): "too long to write out",
    "all_reduce(-1GB, h100:8)": "no negative size",
    "all_gather(-V, h100:8)": "no negative size",
    "padded((8, -128), (8, 128))": "no negative shape",
    "ceil(inf)": "inf is no number",
    "2*NaN": "NaN is no number",
    "colective": "Nothing is said of colective",
    "(" * 100 + "1" + ")" * 100: "nested",
    "1+" * 400 + "1": "more than",
    "1" * (LONGEST + 1): "characters",
    "+".join(f"letter{number}" for number in range(20)): "letters are left open",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(InputError) as error:
        ds.calc(text)
    assert REFUSED[text] in str(error.value)
    assert len(str(error.value)) < 300


NUMBERS = [
    (name, parameter)
    for name in (*functions.ONE_LINE, *functions.CLOSED)
    for parameter in inspect.signature(functions.function_of(name)).parameters.values()
    if parameter.annotation in (Any, int, float)
]


def test_no_function_takes_a_negative_number() -> None:
    assert len(NUMBERS) > 200
    for name, parameter in NUMBERS:
        with pytest.raises(InputError, match="no negative"):
            taken_as(name, parameter, Measure.of(-1.0, taken_unit(name, parameter.name)))


def test_formulas_keep_open_letters() -> None:
    assert ds.calc("2*B*D*F / (2*B*D + 2*D*F + 2*B*F)").formula == "B*D*F/(B*D + B*F + D*F)"
    assert ds.calc("a*x = b*y", solve="x").formula == "b*y/a"
    assert ds.calc("2*x*D = 6*D").value == 3


def test_an_inequality_says_its_side() -> None:
    assert ds.calc("2*x > 6").answers[0].sign == ">"
    assert ds.calc("6 > 2*x").answers[0].sign == "<"
    assert ds.calc("1GB < v5e.hbm").text.startswith("true")


def test_converted_and_read_by_one_source() -> None:
    assert ds.calc("16GB / v5e.hbm_bandwidth", to="ms").text.startswith("19.5122 ms")
    assert ds.calc("90000 s", to="days").text.startswith("1.04167 days")
    assert ds.calc("h100.hbm_bandwidth", source="book").value == 3.4e12
    with pytest.raises(InputError, match="not alike"):
        ds.calc("3s", to="GB")


def test_what_if_the_chips_were_others() -> None:
    both = "v5e.hbm_bandwidth + v5e:4x4.hbm_bandwidth"
    assert ds.calc(both, set="hbm=2x").value == 2 * (ds.calc(both).value or 0)
    assert ds.calc("critical_batch(h100)", set=["flops=1PFLOP/s", "hbm=2TB/s"]).value == pytest.approx(500)
    assert ds.calc("h100.hbm_bandwidth", set="hbm=2x").names[0].source.startswith("what-if")
    with pytest.raises(InputError, match="names none"):
        ds.calc("llama3-8b.params", set="hbm=2x")


def test_whose_number_it_is() -> None:
    assert "of all 2 cores together" in ds.calc("v4.registers").names[0].source
    assert "of all 132 SMs together" in ds.calc("h100.smem").names[0].source
    assert ds.calc("v4.vregs").names[0].source == "book, per core"
    assert (
        "book gives no reading of hbm_bandwidth (nvidia)"
        in ds.calc("gb200.hbm_bandwidth", source="book").notes_beside[0]
    )
    assert not ds.calc("gb200.bf16", source="book").notes_beside


def test_a_power_of_ten_is_told_once() -> None:
    assert ds.calc("5.91e17 FLOP/USD", to="FLOP/USD").text == "5.91e17 FLOP/USD"


def test_parts_of_parts_are_told() -> None:
    lines = {one.name: one.text for one in ds.calc("fat_tree(h100, switch_for(h100), 1024)").answers}
    assert lines["tiers, leaf"].startswith("total 32, children 32, child_links 8, child_bandwidth 400GB/s")
    assert ds.calc("padded((1024, 1024, 384), v6e)").answers[0].text == "1,024 x 1,024 x 512"


def test_which_case_of_a_formula_was_taken() -> None:
    assert "few nodes" in ds.calc("ep_width(h100, 32, 8)").names[-1].source
    assert "more nodes than picks" in ds.calc("ep_width(h100, ways=256, picks=8)").names[-1].source
    assert "far more nodes" in ds.calc("ep_width(h100)").names[-1].source


def test_the_rates_and_the_tier_behind_a_closed_form_are_told() -> None:
    names = {one.name: one.value for one in ds.calc("fsdp_tokens(v5p)").names}
    assert (names["v5p.bf16"], names["v5p.ici_axis"]) == (459e12, 180e9)
    tokens = ds.calc("dp_tokens(h100, 1024)").names
    assert {"h100.bf16", "h100.nvlink", "h100.leaf_bandwidth"} <= {one.name for one in tokens}
    assert tokens[-1].source.endswith("The leaf tier binds.")
    assert ds.calc("all_gather(1GB, h100:64)").names[-1].source.endswith("Bound by the leaf tier.")
    assert "tier" not in ds.calc("all_gather(1GB, v5e:4x4)").names[-1].source
    changed = {one.name: one.value for one in ds.calc("critical_batch(h100)", set="hbm=2x").names}
    assert changed["h100.hbm_bandwidth"] == 6.7e12
    assert {one.source for one in ds.calc("critical_batch(h100)", source="book").names[:1]} == {"book"}


def test_lists_of_one_length_go_row_by_row() -> None:
    assert [one.value for one in ds.calc("B=[1, 8]; C=[2, 3]; B*C").answers] == [2, 24]
    every = ds.calc("B=[1, 8]; C=[2, 3, 4]; B*C")
    assert len(every.answers) == 6
    assert "every combination" in every.notes_beside[0]


def test_one_chip_is_changed() -> None:
    assert ds.calc("h100.hbm_bandwidth / v5e.hbm_bandwidth", set="h100.hbm=2x").value == pytest.approx(6.7e12 / 820e9)
    with pytest.raises(InputError, match="does not name"):
        ds.calc("v5e.hbm", set="h100.hbm=2x")


def test_named_forms() -> None:
    def parts(text: str) -> dict[str, float | str]:
        return {one.name: one.text if one.value is None else one.value for one in ds.calc(text).answers}

    found = parts("bottleneck(compute=3ms, hbm=5ms)")
    assert (found["lower"], found["upper"]) == (pytest.approx(0.005), pytest.approx(0.008))
    assert ds.calc("bottleneck(compute=3ms, hbm=5ms).bottleneck").text == "hbm"
    assert parts("kv_cache(80, 8, 128, 8192)")["bytes"] == 2 * 2 * 80 * 8 * 128 * 8192
    plain = "attention_length(model(D=4096, F=16384, L=24, N=32, V=1, gated=false))"
    assert ds.calc(plain).value == pytest.approx((2 * 16384 + 4 * 4096) * 2 * 4096 / (4 * 4096), rel=1e-3)  # 3F/2 + …
    lacking = parts("tp_zero3(h100:4096, 4M, 70B, 28672)")
    assert lacking["tokens_per_chip"] == pytest.approx(4e6 / 4096)
    assert ds.calc("tp_zero3(h100:4096, 4M, 70B, 28672).enough").text.startswith("no: 976.6 tokens a chip of the 2,474")
    assert ds.calc("tp_zero3(h100:512, 4M, 70B, 28672).enough").text.startswith("yes")
    assert "does not fit" in ds.calc("tp_zero3(h100:8, 4M, 70B, 28672).enough").text
    assert "a tensor degree of 16" in ds.calc("tp_zero3(v5p:8x16x16, 4M, 70B, 28672, tensor=16).enough").text
    times = parts("ep_times(h100, 4096, 7168, 2048, ways=16, picks=8)")
    assert times["math"] == pytest.approx(4 * 4096 * 8 * 7168 * 2048 / (16 * 989.5e12))
    assert times["network"] == pytest.approx(4 * 4096 * 7168 * (16 - 8) / 16 / 400e9)
    inside = parts("ep_times(h100, 4096, 7168, 2048, ways=8, picks=8)")
    assert inside["network"] == pytest.approx(2 * 2 * 4096 * 7168 * 7 / 64 / 450e9)
    assert ds.calc("node_switch(h100).bandwidth").value == 1.6e12
    assert ds.calc("h100.bf16", to="TMAC/s").text.startswith("494.75 TMAC/s")
    assert ds.calc("ports_used(fat_tree(h100, switch_for(h100), 1024), node)").value == 36


def test_nothing_is_less_than_nothing() -> None:
    assert [ds.calc(text).text for text in ("-0", "-1*0", "0*-3 s")] == ["0", "0", "0s"]
    assert math.copysign(1, ds.calc("-1*0").value or 0.0) == 1


def answered(text: str) -> tuple[float | None, str]:
    """The value, or the sentence that there is none."""
    try:
        return ds.calc(text).value, ""
    except InputError as error:
        return None, str(error)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> str:
    """Text that both Python and the calculator read."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(["1", "2.5", "1e3", "7", "0.125", "3e-2", ".5", "12"]))
    if draw(st.integers(0, 4)) == 0:
        return f"{draw(st.sampled_from(['-', '+']))}({draw(expressions(depth - 1))})"
    first, second = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    sign = draw(st.sampled_from(["+", "-", "*", "/", " - ", " * ", "**"]))
    bracket = draw(st.booleans())
    return f"({first}){sign}({second})" if bracket else f"{first}{sign}{second}"


@settings(max_examples=200, deadline=None)
@given(expressions())
def test_it_reckons_as_python_does(text: str) -> None:
    try:
        wanted = eval(text, {"__builtins__": {}})
    except ArithmeticError:
        wanted = None
    if not isinstance(wanted, int | float) or not math.isfinite(wanted):
        with pytest.raises(InputError):
            ds.calc(text)
        return
    found, refused = answered(text)
    if refused:
        assert "exponent" in refused or "too large" in refused
        return
    assert found == pytest.approx(float(wanted), rel=1e-9, abs=1e-300)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="0123456789.+-*/^()[],=<>;$% abBDFxvh5e_·'", max_size=40))
def test_any_text_is_answered_or_refused(text: str) -> None:
    assert "\n" not in answered(text)[1]


def test_the_page_lists_every_function() -> None:
    text = page(PAGE.read_text(encoding="utf-8"))
    assert [name for name in ds.closed_forms.__all__ if f"`{name}(" not in text and f"`{name}`" not in text] == []


def test_every_closed_form_is_called_or_left_to_python() -> None:
    assert set(functions.CLOSED) | set(UNITS_OF_FORMS.library_only) >= set(ds.closed_forms.__all__)
    assert set(UNITS_OF_FORMS.results) <= set(ds.closed_forms.__all__)
    drawn = random.Random(1)
    for name in functions.CLOSED:
        count = len(inspect.signature(functions.function_of(name)).parameters)
        for _ in range(3):
            given_ = [
                drawn.choice(["8", "2", "v5e", "h100:64", "3ms", "1GB", "bf16", "(1, 2)", "40%"]) for _ in range(count)
            ]
            assert "\n" not in answered(f"{name}({', '.join(given_)})")[1]


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calc", "1e12 FLOP / v5e.bf16"]) == 0
    assert capsys.readouterr().out.startswith("5.08ms = 0.00507614 s\n\nv5e.bf16  197TFLOP/s  book")
    assert main(["calc", "1 +"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_unit_without_a_number_is_told_to_be_a_letter() -> None:
    assert "a unit stands behind its number: 1s" in ds.calc("0.003/86400/s").notes_beside[0]
    assert not ds.calc("2*B*D").notes_beside
    assert not ds.calc("s=3; 2*s").notes_beside


@pytest.mark.parametrize(("asked", "rate"), [("intensity(b200, fp8)", "b200.fp8"), ("intensity(v6e)", "v6e.bf16")])
def test_the_rate_that_is_used_is_the_one_that_is_cited(asked: str, rate: str) -> None:
    found = {one.name: one.value for one in ds.calc(asked).names}
    assert rate in found
    chip = rate.partition(".")[0]
    assert found[rate] / found[f"{chip}.hbm_bandwidth"] == pytest.approx(ds.calc(asked).value)
