"""Rooflines, sharded einsums, collectives, chips and explanations asked from Python and from the command line."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.blocks.html import html_of
from dragonscale.blocks.terminal import text_of
from dragonscale.faces.cli import main

EINSUM = "In[B, D_X] · W[D_X, F_Y] -> Out[B, F_Y]"
OP = "%copy.1 = f32[8,4]{0,1} copy(f32[8,4]{1,0} %x)"
SIZES = {"B": 64, "D": 8192, "F": 28672}
ASKED: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "roofline": (
        lambda: ds.roofline("bf16[B,D] @ int8[D,F]", on="v5e", sizes={"D": 8192, "F": 28672}),
        ["roofline", "bf16[B,D] @ int8[D,F]", "--on", "v5e", "--sizes", "D=8192,F=28672"],
    ),
    "amounts": (lambda: ds.roofline("2e12FLOP 3GB", on="h100"), ["roofline", "2e12FLOP 3GB", "--on", "h100"]),
    "shard": (
        lambda: ds.shard(EINSUM, on=ds.parse_slice("v5e:4x8"), sizes=SIZES),
        ["shard", EINSUM, "--on", "v5e:4x8", "--sizes", "B=64,D=8192,F=28672"],
    ),
    "collective": (
        lambda: ds.collective("all_reduce", "450MB", on="h100:1024", in_network=True),
        ["collective", "all_reduce", "450MB", "--on", "h100:1024", "--in-network"],
    ),
    "send": (
        lambda: ds.collective("send", "9MB", on="v5e:4x4", from_chip="0,0", to_chip="3,3"),
        ["collective", "send", "9MB", "--on", "v5e:4x4", "--from-chip", "0,0", "--to-chip", "3,3"],
    ),
    "calc": (lambda: ds.calc("16GB / v5e.hbm_bandwidth", to="ms"), ["calc", "16GB / v5e.hbm_bandwidth", "--to", "ms"]),
    "calc parts": (
        lambda: ds.calc("decode_times(8, 1GB, llama3-8b, 1, h100)"),
        ["calc", "decode_times(8, 1GB, llama3-8b, 1, h100)"],
    ),
    "chips": (lambda: ds.chips(""), ["chips"]),
    "chip": (lambda: ds.chips("h100", source="book"), ["chips", "h100", "--source", "book"]),
    "slice": (lambda: ds.chips("v5p:16x20x28*2"), ["chips", "v5p:16x20x28*2"]),
    "layout": (lambda: ds.chips(layout="f32[3,5]{1,0:T(2,2)}"), ["chips", "--layout", "f32[3,5]{1,0:T(2,2)}"]),
    "hlo": (lambda: ds.hlo("bf16[4,8]{1,0:T(2,4)(2,1)}"), ["hlo", "bf16[4,8]{1,0:T(2,4)(2,1)}"]),
    "hlo op": (lambda: ds.hlo(OP, on="v5e"), ["hlo", OP, "--on", "v5e"]),
    "hlo program": (lambda: ds.hlo("example", on="v5p"), ["hlo", "example", "--on", "v5p"]),
    "hlo topic": (lambda: ds.hlo("memories"), ["hlo", "memories"]),
    "explain": (
        lambda: ds.explain("shard", EINSUM, mesh={"X": 4, "Y": 8}, on="v5e"),
        ["explain", "shard", EINSUM, "--mesh", "X=4,Y=8", "--on", "v5e"],
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_python_and_the_command_give_one_answer(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    ask, arguments = ASKED[name]
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(ask().to_dict()))


@pytest.mark.parametrize("name", ASKED)
def test_an_answer_fits_any_terminal_and_a_page(name: str) -> None:
    answer = ASKED[name][0]()
    for width in (60, 80, 160):
        lines = text_of(answer.sheet(), width).splitlines()
        long = [line for line in lines if len(line) > width and "http" not in line and not line.startswith("  dscale ")]
        assert not long, f"at {width} columns: {long[0]}"
    assert "<script" not in html_of(answer.sheet())
    assert repr(answer).startswith(f"<{type(answer).__name__}: ")
    assert answer.rows()


def test_steps_stand_in_the_order_in_which_they_run() -> None:
    way = ds.shard("In[B, D_Y] · W[D_Y, F] -> Out[B, F]", mesh={"Y": 4}, backward=False, alternatives=1)
    text = str(way)
    assert text.index("matmul In") < text.index("all_reduce over Y")
    assert not way.backward


def test_an_explanation_has_numbers_beside_the_words() -> None:
    found = ds.explain("collective", "all_gather", on="v5e:8x16", axis="Y", size="34MB")
    line = found["lower bound (the larger)"]
    assert (line.unit, line.value_si) == ("s", pytest.approx(34e6 * 15 / 16 / 90e9))
    with pytest.raises(ds.InputError, match="lower bound"):
        found["lower bond (the larger)"]


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: ds.explain("trian", "dp"), "train"),
        (lambda: ds.roofline("2e12FLOP", on=5), "on="),
        (lambda: ds.shard("A[I_X] -> A[I]", mesh=["X", 4]), "mesh"),
        (lambda: ds.roofline("bf16[B,8] @ bf16[8,8]", on="v5e", sizes={"Q": 4}), "Q"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(ask: Callable[[], Any], said: str) -> None:
    with pytest.raises(ds.InputError, match=said):
        ask()
