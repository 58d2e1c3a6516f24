"""Small parts of answers by themselves: sentences and cells at their boundaries."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.commands.charts.wiring import axis_wiring, slice_wiring
from dragonscale.commands.chips_report import network_text
from dragonscale.commands.compare.ask_compare import _OneSide  # pyright: ignore[reportPrivateUsage]
from dragonscale.commands.compare.sides import _much  # pyright: ignore[reportPrivateUsage]
from dragonscale.commands.profile.profile_blocks import _step  # pyright: ignore[reportPrivateUsage]
from dragonscale.commands.run import run_rl
from dragonscale.commands.run.serve_planned import uneven_heads
from dragonscale.commands.serve.answer import _by_held_rate  # pyright: ignore[reportPrivateUsage]
from dragonscale.commands.serve.serve_blocks import time_stack
from dragonscale.commands.simulate.simulate_sheet import power_text, replicas_table
from dragonscale.commands.sweep.workers import cores
from dragonscale.commands.validate.validate_blocks import _summary  # pyright: ignore[reportPrivateUsage]
from dragonscale.listener import Listener
from dragonscale.models import load_model
from dragonscale.physics.hardware import load_chip, parse_slice
from dragonscale.physics.hardware.prices import StrangePrice


def stub(**fields: Any) -> Any:
    """Something with these attributes."""
    return SimpleNamespace(**fields)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(1.05, "5.0%"), (1 / 1.05, "5.0%"), (1.125, "12%"), (1.5, "50%"), (1.99, "99%"), (2.0, "2x"), (0.25, "4x")],
)
def test_how_much_faster(ratio: float, text: str) -> None:
    assert _much(ratio) == text


def test_a_side_passes_on_what_others_have_not_said() -> None:
    outer = Listener()
    side = _OneSide(outer)
    for note in ("a", "b", "a", StrangePrice("a price")):
        side.note(note)
    assert outer.notes == ["a", "b"]


@pytest.mark.parametrize(
    ("chip", "text"),
    [
        ("v5e", ("2D torus, 45 GB/s per link one way", "pod of 16x16")),
        ("h100", ("8 per node, 450 GB/s each one way", "node → leaf → spine")),
    ],
)
def test_a_network_in_a_few_words(chip: str, text: tuple[str, str]) -> None:
    assert network_text(load_chip(chip)) == text


def test_a_mesh_on_a_torus_of_two_axes() -> None:
    piece = parse_slice("v5e:4x8")
    assert slice_wiring(piece) == "a 2D mesh of 4 x 8 chips without wraparound links"
    assert axis_wiring({"fsdp": 4, "tensor": 8}, piece) == {
        "fsdp": "a line of 4 along x",
        "tensor": "a line of 8 along y",
    }
    assert axis_wiring({"fsdp": 3}, piece) == {}


@pytest.mark.parametrize(
    ("watts", "mean", "per_joule", "text"),
    [
        (1400.0, 900.0, 1.234, "about 900W of 1.4kW at most, 1.23 tokens a joule, prompts included"),
        (1400.0, None, 1.234, "1.4kW at most, 1.23 tokens a joule, prompts included"),
        (1400.0, None, None, ""),
        (None, None, 1.0, ""),
    ],
)
def test_power(watts: float | None, mean: float | None, per_joule: float | None, text: str) -> None:
    assert power_text(stub(watts=watts, mean_watts=mean, tokens_per_joule=per_joule)) == text


def test_one_chip_is_drawn_by_its_formats_and_several_by_name() -> None:
    report = ds.chips("h100")
    assert report.plot("roofs").title == "NVIDIA H100 SXM 80GB: roofs by format"
    assert report.plot("hbm").title == "memory of NVIDIA H100 SXM 80GB"


def test_replicas_that_are_left_out_are_counted() -> None:
    report = ds.simulate("llama3-8b", on="h100:1", rate="4/s", requests=20, replicas=2)
    assert [replicas_table(report, rows).foot for rows in (1, 2, 3)] == ["and 1 more", "", ""]
    assert [len(replicas_table(report, rows).rows) for rows in (1, 2, 3)] == [1, 2, 2]


@pytest.mark.parametrize(
    ("paid", "quantized", "order"),
    [
        ((10.0, 5.0), (False, False), [1, 0]),  # cheaper
        ((10.0, 12.0), (False, False), [0, 1]),
        ((10.0, 9.99), (False, False), [0, 1]),  # hardly cheaper
        ((10.0, 5.0), (False, True), [0, 1]),  # in other formats
    ],
)
def test_the_fleet_that_costs_least_comes_first(
    paid: tuple[float, float], quantized: tuple[bool, bool], order: list[int]
) -> None:
    rows: Any = [(None, stub(paid=cost, quantized=narrow)) for cost, narrow in zip(paid, quantized, strict=True)]
    sustained: Any = [stub(row=row, run=object()) for _, row in rows]
    assert [rows.index(row) for row in _by_held_rate(rows, sustained)] == order
    unrun: Any = [stub(row=row, run=None) for _, row in rows]
    assert _by_held_rate(rows, unrun) == rows


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
def test_cores_are_those_that_this_process_may_use() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize(
    ("bias", "scores", "text"),
    [
        (0.1, {}, "predictions are 10.0% too slow on average"),
        (-0.2, {}, "predictions are 20.0% too fast on average"),
        (0.1, {"rates": 1}, "predictions are 10.0% too high on average"),
        (-0.1, {"outcomes": 1}, "predictions are 10.0% too low on average"),
        (None, {}, "predictions are 0.0% too fast on average"),
    ],
)
def test_the_lean_of_predictions(bias: float | None, scores: dict[str, Any], text: str) -> None:
    block: Any = _summary({"bias": bias, "median_ape": 0.1, "mape": 0.2, "within_10pct": 0.5, **scores})
    assert text in str(block)


def test_the_step_of_a_recording() -> None:
    steps = {"fastest_s": 0.9, "slowest_s": 1.2, "kept": 3}
    one = stub(steps=stub(chosen=None, count=1, **steps), step_s=1.0)
    several = stub(steps=stub(chosen=None, count=4, **steps), step_s=1.0)
    chosen = stub(steps=stub(chosen=2, count=4, **steps), step_s=1.0)
    assert [_step(report) for report in (one, several, chosen)] == [
        "1s",
        "1s, mean of 3 of 4 steps (900ms to 1.2s)",
        "1s, step 2 of 0 to 3",
    ]


def test_a_stack_adds_up_whatever_its_parts_are_called() -> None:
    terms: Any = [stub(name=name, expected_s=seconds) for name, seconds in (("a", 5.0), ("zz", 4.0), ("b", 0.05))]
    stack = time_stack("time", terms, detail=False)
    assert [(part.name, part.value) for part in stack.parts[:2]] == [("a", 5.0), ("zz", 4.0)]
    assert sum(part.value for part in stack.parts) == pytest.approx(stack.total) == pytest.approx(9.05)
    assert [part.name for part in time_stack("time", terms, detail=True).parts] == ["a", "zz", "b"]


def test_heads_that_do_not_divide_are_told() -> None:
    model = load_model("llama3-8b")
    orders: list[Any] = [stub(model=model, plan=stub(tensor=tensor)) for tensor in (1, 8, 3)]
    assert [uneven_heads(order) for order in orders[:2]] == [[], []]
    (note,) = uneven_heads(orders[2])
    assert note.startswith("llama3-8b has 32 heads, which tensor=3 does not divide: ")


@pytest.mark.parametrize(("fits_up_to", "expected"), [(None, 4), (8, 4), (2, 2), (1, 1), (0, 8)])
def test_the_largest_microbatch_with_room(
    monkeypatch: pytest.MonkeyPatch, fits_up_to: int | None, expected: int
) -> None:
    """Of an update's 12 sequences on a replica microbatches divide, and no more than `FULL` tokens are one."""

    def planned(order: Any, *_: Any) -> Any:
        if fits_up_to is None:
            return None  # no rate of these chips is known
        return stub(train_bytes=order.train.plan.microbatch, generation=stub(hbm_bytes=0), plan=stub(job=fits_up_to))

    def replaced(record: Any, **changes: Any) -> Any:
        return stub(**{**vars(record), **changes})

    monkeypatch.setattr(run_rl, "planned_step", planned)
    monkeypatch.setattr(run_rl, "room_bytes", float)
    monkeypatch.setattr(run_rl, "replace", replaced)
    run = stub(seq=run_rl.FULL // 5, batch=24)
    order: Any = stub(train=stub(run=run, plan=stub(microbatch=8, replicas=2)), output=10)
    assert run_rl.filled(order, "h100:2").train.plan.microbatch == expected
