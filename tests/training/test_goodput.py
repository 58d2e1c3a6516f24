"""A run with failures: laws of the formula, published runs, and what `dscale train --tokens` says."""

import json
import math
import statistics
from dataclasses import replace

import numpy
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as some

import dragonscale as ds
from dragonscale.errors import Infeasible, InputError
from dragonscale.faces.cli import main
from dragonscale.models import load_model
from dragonscale.physics.hardware import chip_names, load_chip, parse_slice
from dragonscale.physics.hardware import failures as chip_failures
from dragonscale.physics.hardware.failures import failure_rates
from dragonscale.physics.units import DAY
from dragonscale.tables import beside
from dragonscale.training.advice.inverse import finished_s, run_seconds
from dragonscale.training.cost import goodput as failures
from dragonscale.training.cost.evaluation import make_job
from dragonscale.training.cost.goodput import Conditions, best_interval, enough_hosts, goodput, run_goodput
from dragonscale.training.plan.plan import Plan
from dragonscale.training.search.search_memory import Candidate
from tools import list_goodput

RATES = some.floats(1e-8, 1e-4)
TIMES = some.floats(1.0, 1000.0)


@given(RATES, TIMES, TIMES)
def test_the_interval_found_is_the_best_of_a_grid(rate: float, restart: float, save: float) -> None:
    best = best_interval(1, rate, restart, save)
    shares = [goodput(1, rate, best * by, restart, save) for by in (0.5, 0.9, 0.99, 1.0, 1.01, 1.1, 2.0)]
    assert max(shares) == pytest.approx(shares[3], rel=1e-12)
    assert best <= failures.checkpoint_interval(1, rate, save)  # Young leaves out the restart and the stops


PIECE = parse_slice("h100:2048")
SIZES = some.floats(1e9, 1e13)


def ends(run: failures.Run) -> tuple[float, ...]:
    return run.seconds, run.seconds_p90, run.busy_s * run.paid, run.busy_p90_s * run.paid


@settings(max_examples=60)
@given(SIZES, some.floats(1e9, 1e13), some.floats(3e3, 1e7), some.floats(1.01, 10.0), some.booleans(), some.booleans())
def test_more_failures_or_slower_checkpoints_are_never_faster_or_cheaper(
    size: float, storage: float, mtbf: float, more: float, waits: bool, every: bool
) -> None:
    given_ = Conditions(1800.0 if every else None, storage, waits, mtbf)
    try:
        run = run_goodput(PIECE, 30 * DAY, size, given_)
        others = [replace(given_, mtbf=mtbf / more), replace(given_, storage=storage / more)]
        others += [replace(given_, restart=600 * more), replace(given_, spot=True)]
        worse = [run_goodput(PIECE, 30 * DAY, size, one) for one in others]
    except Infeasible:
        return
    assert run.seconds_p90 >= run.seconds >= run.clean_s
    for other in worse:
        assert all(after >= before * (1 - 1e-9) for before, after in zip(ends(run), ends(other), strict=True))


def test_one_formula_for_numbers_arrays_and_letters() -> None:
    rates = numpy.array([1e-6, 1e-5])
    for formula in (lambda rate: best_interval(8, rate, 600, 10), lambda rate: goodput(8, rate, 600, 600, 10)):
        assert formula(rates).tolist() == pytest.approx([formula(one) for one in rates.tolist()])
    rate, save, restart, interval = sympy.symbols("r w u t", positive=True)
    slope = sympy.diff(goodput(1, rate, interval, restart, save), interval)
    at = {rate: 1e-5, save: 10.0, restart: 600.0}
    assert slope.subs(at | {interval: best_interval(1, 1e-5, 600.0, 10.0)}) == pytest.approx(0, abs=1e-12)


def test_saves_that_are_not_waited_for_stop_a_job_briefly_and_lose_what_is_not_written() -> None:
    waiting, beside_ = (run_goodput(PIECE, DAY, 5e12, Conditions(storage=1e11, waits=waits)) for waits in (True, False))
    assert (waiting.save_s, waiting.write_s, beside_.save_s) == (50.0, 50.0, 6.3)
    assert beside_.restart_s == waiting.restart_s + 50.0
    assert waiting.save_s < beside_.interval_s < waiting.interval_s
    small = run_goodput(PIECE, DAY, 1e9, Conditions(storage=1e10))
    assert small.save_s == pytest.approx(0.1)  # a small one is written sooner than a copy takes at most


def test_a_save_is_written_before_the_next_begins() -> None:
    slow = run_goodput(PIECE, 30 * DAY, 1e13, Conditions(storage=1e9, mtbf=2 * DAY))
    assert slow.interval_s == pytest.approx(1e4 - 6.3)


def test_a_deadline_is_held_with_failures() -> None:
    job = make_job(load_model("llama3-8b"), parse_slice("h100:64"), 128, 8192, "megatron-core")
    best = Candidate(Plan(fsdp=64), 2.0, 50e9)
    clean = run_seconds(job, 2.0, 1e12)
    usual, failing = (finished_s(replace(job, run=Conditions(mtbf=mtbf)), best, 1e12) for mtbf in (None, 7200.0))
    assert clean < usual < failing
    assert finished_s(replace(job, run=Conditions(mtbf=60.0)), best, 1e12) == math.inf
    assert finished_s(job, best, None) == 2.0


def test_a_short_run_saves_once() -> None:
    run = run_goodput(parse_slice("h100:8"), 3600, 1e10, Conditions())
    assert run.interval_s == 3600
    assert 3600 < run.seconds < 3680


def test_spares_are_paid_for_and_without_them_hosts_are_waited_for() -> None:
    run, none, many = (run_goodput(PIECE, DAY, 1e12, Conditions(spares=spares)) for spares in (None, 0, 12))
    assert run.waiting == 0
    assert run.paid == 1
    assert none.waiting == pytest.approx(1 - math.exp(-none.out))
    assert none.seconds > many.seconds > run.seconds
    assert many.paid == pytest.approx((1 + 12 / 256) / enough_hosts(many.out, 12))
    assert enough_hosts(3.0, 200) == pytest.approx(1.0)


def test_spot_chips_are_taken_away_and_waited_for_but_not_paid_meanwhile() -> None:
    spot, kept = (run_goodput(PIECE, 10 * DAY, 1e12, Conditions(spot=spot)) for spot in (True, False))
    assert spot.preempted == pytest.approx(381 / 1166 / 3600, rel=0.01)
    assert spot.waiting == pytest.approx(0.38)
    assert spot.paid == kept.paid == 1
    assert spot.seconds > spot.busy_s / 0.63 > kept.seconds


def test_a_run_that_ends_before_spot_chips_are_taken_away_waits_for_none() -> None:
    minutes, hour, hours, day = (run_goodput(PIECE, s, 1e9, Conditions(spot=True)) for s in (600, 3600, 15000, DAY))
    assert (minutes.waiting, minutes.waiting_p90, hour.waiting) == (0, 0, 0)
    assert hour.waiting_p90 == pytest.approx(0.38)
    assert 0 < hours.waiting < day.waiting == pytest.approx(0.38)


def test_nine_runs_in_ten_by_chance_and_by_clusters() -> None:
    known, published = (run_goodput(PIECE, 60 * DAY, 1e12, Conditions(mtbf=mtbf)) for mtbf in (DAY, None))
    lost = known.restart_s + known.interval_s / 2
    each = math.sqrt(lost**2 + known.interval_s**2 / 12)
    assert known.more_s == pytest.approx(1.2816 * math.sqrt(known.failures) * each)
    lost = published.restart_s + published.interval_s / 2
    assert published.more_s > 1.2816 * 0.57 * published.failures * lost


def test_the_spread_is_that_of_published_rates() -> None:
    table = beside(chip_failures.__file__, "failures.toml")
    logs = [math.log(rate) for rate in table["clusters"]["per_1000_host_days"].values()]
    assert table["clusters"]["log_spread"] == pytest.approx(statistics.stdev(logs), abs=0.005)


def test_failures_and_recoveries_name_their_sources() -> None:
    rates = beside(chip_failures.__file__, "failures.toml")
    assert {family["source"] for family in rates["families"].values()} <= set(rates["sources"])
    recovery = beside(failures.__file__, "recovery.toml")
    assert {time["source"] for time in recovery["times"].values()} <= set(recovery["sources"])


def test_chips_without_published_failures_are_listed() -> None:
    """A new chip is added to a family of `failures.toml` or, on purpose, to this list."""
    stand_ins = {"ada", "apple", "cdna3", "cdna4", "gaudi3", "trainium2", "trainium3", "turing", "volta"}
    stand_ins |= {"pascal", "gcn5", "cdna", "cdna2", "rdna3", "rdna3.5", "rdna4", "xe", "xe2"}
    uncounted = [chip for chip in map(load_chip, chip_names()) if "no counts of" in failure_rates(chip).source]
    assert {chip.architecture for chip in uncounted} == stand_ins


def test_published_runs_are_in_the_docs_as_the_planner_has_them() -> None:
    assert list_goodput.table() in list_goodput.PAGE.read_text(encoding="utf-8")
    shares = {row["name"].split(",")[0]: list_goodput.planned(row) for row in list_goodput.runs()}
    assert shares["LLaMA-3 405B"].failures == pytest.approx(419, rel=0.01)
    assert 0.90 < shares["LLaMA-3 405B"].goodput < 0.95
    assert shares["MegaScale 175B"].goodput > 0.9
    assert shares["ByteRobust"].goodput == pytest.approx(0.97, abs=0.01)
    assert 0.35 < shares["Meta"].goodput < 0.65


RUN = ["train", "llama3-8b", "--on", "h100:64", "--batch", "128seq", "--seq", "8192", "--tokens", "1T", "--alone"]
RUN += ["--plan", "fsdp=64"]


def asked(capsys: pytest.CaptureFixture[str], *more: str) -> dict:
    assert main([*RUN, *more, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_run_has_its_goodput(capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(capsys)
    run, plan = answer["goodput"], answer["plans"][0]
    assert plan["days"] < run["days"] < run["days_p90"]
    assert run["cost_usd"] == pytest.approx(run["days"] * 24 * 64 * 3.99)
    assert run["effective_mfu"] == pytest.approx(plan["mfu"] * plan["days"] / run["days"])
    assert run["checkpoint_bytes"] == pytest.approx(14 * 8.03e9, rel=0.001)
    assert run["energy_kwh"] == pytest.approx(run["days"] * 24 * 64 * 0.7 * 1.8 * 1.3)
    assert run["co2_kg"] == pytest.approx(0.37 * run["energy_kwh"])
    adapters = asked(capsys, "--method", "lora")["goodput"]
    assert adapters["checkpoint_bytes"] < 0.01 * run["checkpoint_bytes"]
    assert asked(capsys, "--carbon", "50g/kWh")["goodput"]["co2_kg"] == pytest.approx(0.05 * run["energy_kwh"])


def test_flags_say_what_a_run_meets(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--checkpoint-every", "30m", "--storage", "1GB/s,sync", "--mtbf", "12h", "--restart", "5m"]
    run = asked(capsys, *flags, "--spares", "10%")["goodput"]
    assert (run["checkpoint_every_s"], run["mtbf_s"], run["spares"]) == (1800, 43200, 1)
    assert run["save_s"] == run["write_s"] == pytest.approx(112.4, rel=0.01)
    assert run["restart_s"] == pytest.approx(300 + run["write_s"])
    spot = asked(capsys, "--pricing", "spot")["goodput"]
    assert spot["preemptions"] > 10
    assert main([*RUN, *flags, "--explain"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "days with failures (p90" in told
    assert "one every 12h, by --mtbf" in told
    assert "t of CO2 at 370 g/kWh" in told


@pytest.mark.parametrize(
    "flags",
    [["--storage", "50"], ["--storage", "50GB/s,fast"], ["--mtbf", "0s"], ["--spares", "x"], ["--carbon", "green"]],
)
def test_what_is_none_is_refused(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, *flags]) == 2
    assert flags[0] in capsys.readouterr().err


def test_a_job_that_fails_faster_than_it_restarts_says_so() -> None:
    words = {"on": "h100:64", "batch": "128seq", "seq": 8192, "tokens": "1T", "plan": "fsdp=64", "alone": True}
    report = ds.train("llama3-8b", **words, mtbf="5m")
    assert report.goodput is None
    assert any("No time is left" in note for note in report.notes)
    with pytest.raises(InputError):
        ds.train("llama3-8b", **words, pricing="free")
