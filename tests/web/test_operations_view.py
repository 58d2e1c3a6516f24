"""Panels of operations, shardings and collectives: their numbers are the command's own, their pictures agree with the
layouts."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dragonscale.faces.cli import main
from dragonscale.web.answers import answer
from dragonscale.web.page_request import KEPT
from dragonscale.web.views.array_picture import array_picture
from dragonscale.web.views.notation import marked

MATMUL = {"expression": "bf16[B,8192] @ bf16[8192,28672]", "on": "v5e", "sizes": "B=512"}
SHARDED = {
    "expression": "A[I_X, J] @ B[J_X, K] -> C[I, K]",
    "mesh": "X=4,Y=8",
    "on": "v5e:4x8",
    "sizes": "I=8192,J=8192,K=8192",
}
REDUCE = {"kind": "all_reduce", "size": "64MB", "on": "h100:64"}


@pytest.fixture(autouse=True, scope="module")
def _forgotten() -> Iterator[None]:
    yield
    KEPT.clear()


def asked(view: str, fields: dict[str, Any], panels: list[str], **more: Any) -> dict[str, Any]:
    """The panels of a question; what went wrong is under `error`."""
    messages: list[dict[str, Any]] = []
    answer({"view": view, "fields": fields, "panels": panels, **more}, messages.append)
    found = {one["panel"]: one["data"] for one in messages if "panel" in one}
    return found | ({"error": messages[-1]["error"]["text"]} if "error" in messages[-1] else {})


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """What the command prints with --json."""
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def figures(panel: dict[str, Any]) -> dict[str, float]:
    return {one["label"]: one["number"]["value"] for one in panel["figures"]}


def test_a_roofline_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked("roofline", MATMUL, ["notation", "answer", "roof", "curve"])
    record = printed(capsys, "roofline", MATMUL["expression"], "--on", "v5e", "--sizes", "B=512")
    shown = figures(found["answer"])
    assert shown["at best"] == record["lower_s"]
    assert shown["without overlap"] == record["upper_s"]
    assert shown["intensity"] == record["intensity_flops_per_byte"]
    assert shown["bytes"] == record["bytes"]
    crossing = next(row["value"] for row in record["crossovers"] if row["variable"] == "B")
    assert [rule["at"] for rule in found["curve"]["rules"]] == pytest.approx([crossing])
    assert found["curve"]["marks"][0]["y"] == pytest.approx(record["lower_s"])
    assert found["roof"]["points"][-1]["rate"] == record["attainable_flops_per_s"]
    [letter] = found["notation"]["letters"]
    assert letter["name"] == "B"
    assert {"size": 512, "text": "512"} in letter["stops"]


def test_while_a_slider_moves_the_numbers_are_the_same() -> None:
    quick, whole = (asked("roofline", MATMUL, ["answer", "roof"], brief=brief) for brief in (True, False))
    assert figures(quick["answer"]) == figures(whole["answer"])
    assert quick["roof"] == whole["roof"]
    assert quick["answer"]["crossovers"] == [] != whole["answer"]["crossovers"]


def test_every_number_of_an_operation_says_how_it_is_derived() -> None:
    for view, fields in (("roofline", MATMUL), ("shard", SHARDED), ("collective", REDUCE)):
        for one in asked(view, fields, ["answer"])["answer"]["figures"]:
            assert one["number"]["why"].startswith(f"{view}:"), one


def test_a_sharding_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked("shard", SHARDED, ["answer", "passes"])
    words = [f"--{name}={SHARDED[name]}" for name in ("mesh", "on", "sizes")]
    record = printed(capsys, "shard", SHARDED["expression"], *words)
    for drawn in found["passes"]["passes"]:
        for line, own in zip(drawn["lines"], record[drawn["name"]], strict=True):
            assert [way["lower"]["value"] for way in line["ways"]] == [way["lower_s"] for way in own["strategies"]]
            for way, told in zip(line["ways"], own["strategies"], strict=True):
                seconds = [move["seconds"]["value"] for move in way["moves"]]
                assert seconds == [move["seconds"] for move in told["collectives"]]
                assert way["sent"]["value"] == told["wire_bytes_per_chip"]
                assert len(way["stages"]) == len(seconds) + way["computes"]
    assert record["advice"] in found["answer"]["sentence"]


@pytest.mark.parametrize(
    "text", ["A[I_X, J]", "A[I_XY, J]", "A[I_Y, J_X]", "A[I, J]", "A[I]{U_X}", "A[B, I_X, J, K_Y]"]
)
def test_a_picture_gives_each_chip_one_block_and_each_block_as_many_chips(text: str) -> None:
    drawn = array_picture(text, {"X": 2, "Y": 4}, {"I": 64, "J": 64, "B": 2, "K": 64}, {"X": "tensor", "Y": "fsdp"})
    blocks = drawn["rows"]["cuts"] * drawn["cols"]["cuts"]
    counts = [drawn["held"].count(block) for block in range(blocks)]
    assert sum(counts) == 8
    assert set(counts) == {8 // blocks}
    assert drawn["copies"] * drawn["summands"] * blocks == 8


def test_a_collective_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked("collective", REDUCE, ["answer", "curve"])
    record = printed(capsys, "collective", "all_reduce", "64MB", "--on", "h100:64")
    shown = figures(found["answer"])
    assert shown["at best"] == record["lower_s"]
    assert shown["expected"] == record["expected_s"]
    assert [row["seconds"]["value"] for row in found["answer"]["tiers"]] == [row["seconds"] for row in record["tiers"]]
    turn = record["latency_bound_below_bytes"]
    assert [rule["at"] for rule in found["curve"]["rules"]] == [turn]
    curves = {series["name"]: dict(map(tuple, series["points"])) for series in found["curve"]["series"]}
    for size, seconds in curves["at best"].items():
        assert seconds == pytest.approx(max(curves["bandwidth alone"][size], curves["latency alone"][size]), rel=0.02)


@pytest.mark.parametrize(
    ("view", "fields", "said", "at"),
    [
        ("roofline", {"expression": "bf17[B,8] @ bf16[8,8]", "on": "v5e"}, "There is no dtype 'bf17'", [0, 4]),
        ("roofline", {"expression": "A[I_X,8] @ B[8,8]", "on": "v5e"}, "sharded over X", None),
        ("roofline", MATMUL | {"sizes": "Q=4"}, "'Q'", None),
        ("shard", SHARDED | {"expression": "A[I_X, J] @ B[J_Q, K] -> C[I, K]"}, "mesh axis Q", [16, 17]),
        ("shard", SHARDED | {"expression": "A[I_X, J @ B[J, K]"}, "is not an array", None),
        ("shard", SHARDED | {"expression": "A[I_X, J_X] @ B[J, K] -> C[I, K]"}, "used twice", [0, 11]),
        ("shard", SHARDED | {"mesh": "X=4"}, "must agree", None),
        ("shard", SHARDED | {"sizes": "I=3,J=8,K=8"}, "does not divide", None),
        ("shard", SHARDED | {"expression": "../secret"}, "looks like a file", None),
    ],
)
def test_bad_notation_gets_one_sentence_and_its_place(
    view: str, fields: dict[str, Any], said: str, at: list[int] | None
) -> None:
    found = asked(view, fields, ["notation", "answer"])
    assert said in found["notation"]["wrong"]
    assert found["notation"]["at"] == at
    assert found["error"].count("\n") == 0
    assert said in found["error"]


def test_the_marked_place_lies_in_the_expression() -> None:
    text = "A[I_X, J] @ B[J_{data,fsdp}, K]"
    assert marked(text, "There is no mesh axis 'fsdp'. Known: X.") == [text.index("fsdp"), text.index("fsdp") + 4]
    assert marked(text, f"{text!r} is not an einsum.") is None
