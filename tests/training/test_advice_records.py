"""Advice of the planner as Python code asks for it: a job and a plan in, records with numbers and reasons out."""

from dataclasses import replace

import pytest

from dragonscale.models import load_model
from dragonscale.physics.hardware import load_chip, parse_slice
from dragonscale.physics.numbers import first_number
from dragonscale.physics.units import DAY
from dragonscale.training.advice.assessment import assess
from dragonscale.training.advice.best_plans import FULL, best_plans, passed_over, why_not_recommended
from dragonscale.training.advice.better_chip import better_chip, nearest_rival
from dragonscale.training.advice.given_plan import as_stack_runs, compare_with_best, run_given_plan
from dragonscale.training.advice.measured_step import explain_measured
from dragonscale.training.advice.memory_relief import memory_relief
from dragonscale.training.advice.plan_advice import advise
from dragonscale.training.advice.run_outlook import run_outlook
from dragonscale.training.advice.slice_choice import cheapest_part, scaling_points, scheme_curves
from dragonscale.training.advice.speedups import BATCH, MIN_GAIN, NO_RECOMPUTE, ONE_PASS, speedups
from dragonscale.training.advice.training_job import TrainingJob
from dragonscale.training.advice.ways_to_fit import missing_memory, ways_to_fit
from dragonscale.training.cost.evaluation import judge_one, make_job
from dragonscale.training.cost.goodput import Conditions
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.search.search import Candidate
from dragonscale.training.search.space import parse_space

SMALL = parse_space("mb1,zero=3,remat=none|block,schedule=1f1b")
"""Few plans, so that a search takes no time."""


def run_on(on: str, batch: int = 64, sequence: int = 8192, **limits: object) -> TrainingJob:
    start = TrainingJob(load_model("llama3-8b"), parse_slice(on), batch, sequence, space=SMALL, stack="megatron-lm")
    return replace(start, **limits)


def test_a_job_carries_its_limits_to_every_slice() -> None:
    run = run_on("h100:8", documents=2048, headroom=0.2, conditions=Conditions(spares=2.0))
    for job in (run.on_slice(), run.on_slice(parse_slice("h100:16"))):
        assert (job.documents, job.headroom, job.run.spares) == (2048, 0.2, 2.0)
    assert run.on_slice(parse_slice("h100:16")).slice.chips == 16


def test_the_stack_that_was_taken_stays() -> None:
    run = run_on("h100:8", stack="auto", chosen_stack="torchtitan")
    assert run.on_slice().stack.name == "torchtitan"


def test_only_a_chip_alone_leaves_the_number_of_chips_open() -> None:
    h100 = load_chip("h100")
    assert run_on("h100:8", slice=None, targets=((h100, None),)).chip == h100
    assert run_on("h100:8", slice=None, targets=((h100, None), (load_chip("h200"), None))).chip is None


def test_an_assessment_agrees_with_the_verdict_it_holds() -> None:
    job = run_on("h100:8").on_slice()
    assessed = assess(job, parse_plan("fsdp8 z3 none"), tokens=1e12)
    assert assessed.step_s == first_number(judge_one(job, assessed.plan).seconds)
    assert assessed.step_low_s < assessed.step_s < assessed.step_high_s
    assert assessed.budget is not None
    assert assessed.budget.steps == pytest.approx(1e12 / job.tokens, abs=1)
    assert assessed.feasible
    assert assessed.mfu_of_dtype is None
    assert not assess(job, parse_plan("fsdp4 z3 none")).feasible  # four of eight chips


def test_what_a_stack_does_not_run_is_feasible_only_by_force() -> None:
    job = make_job(load_model("llama3-8b"), parse_slice("h100:8"), 64, 8192, "torchtitan")
    plan = parse_plan("data8 zero=1 block mb1 adam8")
    refused = assess(job, plan)
    assert refused.illegal
    assert not refused.feasible
    assert not {*refused.illegal} & {*assess(job, plan, force=True).problems}


def test_speedups_are_sorted_and_each_gains_what_it_says() -> None:
    job = run_on("h100:64").on_slice()
    plan = parse_plan("fsdp=64,remat=block")
    found = speedups(job, plan)
    assert {NO_RECOMPUTE, BATCH, ONE_PASS} & {speedup.kind for speedup in found}
    assert [speedup.gain for speedup in found] == sorted((speedup.gain for speedup in found), reverse=True)
    before = job.tokens / first_number(judge_one(job, plan).seconds)
    for speedup in found:
        after = speedup.job.tokens / first_number(judge_one(speedup.job, speedup.plan).seconds)
        assert after / before - 1 == pytest.approx(speedup.gain)
        assert speedup.gain > MIN_GAIN


def test_a_run_of_few_tokens_is_not_advised_to_double_its_batch() -> None:
    job = run_on("h100:64").on_slice()
    plan = parse_plan("fsdp64 z3 none mb1")
    assert {speedup.kind for speedup in speedups(job, plan)} & {BATCH, ONE_PASS}
    assert not {speedup.kind for speedup in speedups(job, plan, tokens=1e9)} & {BATCH, ONE_PASS}


def test_relief_fits_where_the_plan_does_not() -> None:
    job = run_on("h100:8").on_slice()
    full = assess(job, parse_plan("fsdp8 z3 none mb8"))
    assert not full.fits
    relief = memory_relief(job, full.plan, full.verdict)
    assert relief is not None
    assert relief.fits
    assert relief.hbm_bytes < full.hbm_bytes
    assert all(relief.plan[name] != full.plan[name] for name in relief.settings)
    advice = advise(full)
    assert not advice.speedups
    assert advice.relief is not None
    assert advice.relief.plan == relief.plan


def test_a_given_plan_is_completed_as_its_stack_runs_it() -> None:
    run = as_stack_runs(run_on("h100:16").on_slice(), parse_plan("tp8"), frozenset({"tensor"}))
    assert (run.plan.fsdp, run.plan.chips, run.replicated) == (2, 16, True)
    whole = as_stack_runs(run_on("h100:16").on_slice(), parse_plan("tp8 dp2 z1"), frozenset({"tensor", "data", "zero"}))
    assert not whole.replicated
    assert whole.ranks_note  # data ranks with a stage of ZeRO are read as fsdp ranks


def test_a_plan_that_the_usual_stacks_refuse_is_run_by_another() -> None:
    plan = parse_plan("fsdp8 z3 none mb1")
    run = run_given_plan(run_on("h100:8", stack="auto"), plan, frozenset({"fsdp", "zero", "remat", "microbatch"}))
    assert not run.refused_by
    assert run.job.stack.name in ("megatron-lm", "torchtitan")


def test_a_given_plan_is_compared_with_the_best() -> None:
    run = run_on("h100:8")
    job = run.on_slice()
    compared = compare_with_best(job, assess(job, parse_plan("fsdp8 z3 block mb1")), run.space, run.slack, None, None)
    assert compared.best is not None
    assert compared.best.plan.remat == "none"
    assert compared.changes[0].setting == "remat"
    assert compared.faster is None


def test_the_best_plans_say_why_faster_ones_are_not() -> None:
    run = run_on("h100:8")
    best = best_plans(run, run.on_slice(), count=3)
    assert best.job.stack.name == "megatron-lm"
    assert not best.refusals
    assert all(other.gain > 0 for other in passed_over(best.job, best.result))
    recommended = best.result.best[0]
    full = Candidate(parse_plan("fsdp8 z3 none mb4"), recommended.seconds / 2, 84e9, roomy=False)
    reason = why_not_recommended(best.job, recommended, full)
    assert (reason.reason, reason.gain) == (FULL, pytest.approx(1.0))


def test_ways_to_fit_name_the_slice_that_holds_a_job() -> None:
    run = run_on("h100:1", batch=8, space=parse_space("mb1,zero=3,remat=block"))
    job = run.on_slice()
    nearest = best_plans(run, job, count=1).result.nearest
    assert nearest is not None
    missing = missing_memory(job, nearest)
    assert missing == pytest.approx(nearest.hbm_bytes / job.slice.chip.visible)
    ways = ways_to_fit(run, job, nearest)
    assert not ways.methods  # nobody asked for fine-tuning
    assert ways.larger is not None
    assert ways.sizes[0].job.slice.chips > 1
    assert not ways.combined


def test_a_measured_step_outside_its_band_has_suspects() -> None:
    expected = assess(run_on("h100:8").on_slice(), parse_plan("fsdp8 z3 none mb1"))
    within = explain_measured(expected, expected.step_s * 1.01)
    assert within.within_band
    assert not within.suspects
    slow = explain_measured(expected, expected.step_s * 1.5)
    assert slow.slower
    assert slow.suspects
    assert slow.straggler is None  # there is one host
    assert 0 < slow.explains(slow.suspects[0]) < 1.5
    impossible = explain_measured(expected, first_number(expected.verdict.lower) / 2)
    assert impossible.impossible
    assert not impossible.published


def test_the_cheapest_part_ends_within_a_year_where_one_does() -> None:
    run = run_on("h100:64", tokens=1e12)
    part = cheapest_part(run, run.on_slice())
    assert part is not None
    assert part.in_time == (part.best.seconds <= 365 * DAY)
    assert part.shortest.seconds <= part.best.seconds
    cost = part.best.best.seconds * part.best.job.slice.chips
    assert part.cheapest.best.seconds * part.cheapest.job.slice.chips <= cost


def test_scaling_is_over_the_slice_that_was_asked_about() -> None:
    run = run_on("h100:8")
    points = {point.slice.chips: point for point in scaling_points(run, parse_slice("h100:8"))}
    assert points[8].efficiency == pytest.approx(1.0)
    assert points[16].efficiency is not None
    assert points[16].efficiency < 1.05


def test_a_scheme_curve_ends_where_its_wires_take_over() -> None:
    for curve in scheme_curves(run_on("h100:64").on_slice()):
        if curve.crossover is not None:
            assert curve.points[0].chips <= curve.crossover <= curve.points[-1].chips
            assert curve.at_crossover.chips <= 2 * curve.crossover
        else:
            assert curve.at_crossover == curve.points[-1]


def test_a_better_chip_never_makes_a_job_slower() -> None:
    run = run_on("h100:8", space=parse_space("fsdp8,mb1,zero=3,remat=none"))
    better = better_chip(run, run.on_slice())
    assert better.assessed.plan.fsdp == 8
    assert all(improvement.gain >= 0 for improvement in better.improvements)
    assert all(improvement.doubled_gain >= -1e-9 for improvement in better.improvements)


def test_a_rival_splits_the_model_in_another_way() -> None:
    plan = parse_plan("fsdp8 z3 none")
    alike, other = parse_plan("fsdp8 z3 block"), parse_plan("tp8 none")
    assert nearest_rival(plan, [alike, other]) == other
    assert nearest_rival(plan, [alike]) is None


def test_a_spot_run_stands_beside_one_on_demand() -> None:
    job = run_on("h100:64", conditions=Conditions(spot=True)).on_slice()
    outlook = run_outlook(job, parse_plan("fsdp64 z3 none mb1"), clean_s=30 * DAY)
    assert outlook.run.preempted > 0
    assert outlook.energy_kwh is not None
    calm = run_outlook(replace(job, run=Conditions()), parse_plan("fsdp64 z3 none mb1"), clean_s=30 * DAY)
    assert calm.on_demand is None
    assert calm.run.seconds < outlook.run.seconds
