"""What better hardware changes, and the planner asked backwards."""

from dataclasses import replace

import pytest

from dragonscale.models import load_model
from dragonscale.physics.hardware import load_chip, parse_slice
from dragonscale.training.advice.codesign import knobs, loss_shrinks, raised, sensitivity, smallest_change
from dragonscale.training.advice.inverse import deeper, fewest_chips, largest_batch, largest_model, least_chips
from dragonscale.training.advice.scaling import SCHEMES, around, crossover, parts_of, scheme_curve, slice_sizes
from dragonscale.training.cost.evaluation import Job, judge_one, make_job, problems
from dragonscale.training.plan.plan import Plan
from dragonscale.training.search.search import search
from dragonscale.training.search.space import Space

QUICK = Space(remat=("selective", "block"), zero=(1, 3), schedule=("1f1b",))


@pytest.fixture(scope="module")
def job() -> Job:
    return make_job(load_model("llama3-8b"), parse_slice("h100:32"), 64, 4096)


def test_knobs_are_the_wires_that_there_are() -> None:
    assert [knob.title for knob in knobs(parse_slice("h100:64"))] == [
        "FLOP/s",
        "HBM bandwidth",
        "HBM capacity",
        "NVLink bandwidth",
        "network bandwidth",
    ]
    assert "DCN bandwidth" not in [knob.title for knob in knobs(parse_slice("v5p:4x4x4"))]
    assert "DCN bandwidth" in [knob.title for knob in knobs(parse_slice("v5e:16x16*2"))]


def test_raising_a_knob_changes_only_it() -> None:
    chip = load_chip("h100")
    knob = knobs(parse_slice("h100:8"))[1]
    better = raised(chip, knob, 1.1)
    assert better.hbm.bandwidth == pytest.approx((chip.hbm.bandwidth or 0) * 1.1)
    assert better.peak("bf16") == chip.peak("bf16")


def test_nothing_gets_slower(job: Job) -> None:
    best = search(job, QUICK, 1).best[0]
    changes = sensitivity(job, QUICK, best.plan, best.seconds)
    assert all(change.doubled <= 1.001 * change.seconds for change in changes if change.plan == best.plan)
    assert all(change.seconds <= best.seconds * (1 + 1e-9) for change in changes)
    assert changes[0].knob.title == "FLOP/s"


def test_the_smallest_change_removes_the_loss(job: Job) -> None:
    plan = Plan(fsdp=4, tensor=8, remat="block")
    verdict = judge_one(job, plan)
    share = verdict.ledger.by("term", "exposed_s")["tensor collectives"] / verdict.seconds
    change = smallest_change(job, plan, loss_shrinks("tensor collectives", 0.8 * share))
    assert change is not None
    assert change.knob.title == "NVLink bandwidth"
    assert change.seconds < verdict.seconds


def test_fewest_chips_is_the_first_that_fits(job: Job) -> None:
    chip = load_chip("h100")
    fit = fewest_chips(job, chip, QUICK)
    assert fit is not None
    assert not problems(fit.job, fit.best.plan, judge_one(fit.job, fit.best.plan))
    for piece in slice_sizes(chip, fit.job.slice.chips - 1, fine=True):
        assert not search(replace(job, slice=piece), QUICK, 1).best


def test_a_deadline_needs_more_chips(job: Job) -> None:
    chip = load_chip("h100")
    loose, tight = (fewest_chips(job, chip, QUICK, deadline=seconds) for seconds in (10.0, 1.0))
    assert loose is not None
    assert tight is not None
    assert tight.seconds <= 1.0
    assert tight.job.slice.chips > loose.job.slice.chips
    assert least_chips(job, chip, 1.0, None) <= tight.job.slice.chips


def test_the_largest_batch_fits_and_twice_as_much_does_not(job: Job) -> None:
    small = replace(job, slice=parse_slice("h100:8"))
    fit = largest_batch(small, QUICK)
    assert fit is not None
    assert fit.best.plan.replicas * fit.best.plan.microbatch == fit.job.batch
    more = replace(small, batch=fit.job.batch + small.slice.chips)  # not only twice as much
    found = search(more, replace(QUICK, single=True, fixed={"pipe": 1, "virtual": 1}), 1).best
    assert not any(one.roomy for one in found)


def test_the_largest_model(job: Job) -> None:
    small = replace(job, slice=parse_slice("h100:8"))
    fit = largest_model(small, replace(QUICK, remat=("block",), fixed={"microbatch": 1}))
    assert fit is not None
    assert fit.job.model.n_layers >= small.model.n_layers
    more = deeper(small.model, fit.job.model.n_layers * 2)
    assert not search(replace(small, model=more), replace(QUICK, remat=("block",)), 1).best


def test_slices_around_another() -> None:
    assert [str(piece) for piece in slice_sizes(load_chip("h100"), 64)] == [
        "h100:1",
        "h100:2",
        "h100:4",
        "h100:8",
        "h100:16",
        "h100:32",
        "h100:64",
    ]
    assert all(piece.chips < 512 for piece in parts_of(parse_slice("v5p:8x8x8")))
    chips = [piece.chips for piece in around(parse_slice("v5e:8x8"))]
    assert chips == sorted(chips)
    assert 64 in chips


def test_each_scheme_stops_scaling_somewhere(job: Job) -> None:
    pieces = slice_sizes(load_chip("h100"), 4096)
    curves = {scheme: scheme_curve(replace(job, batch=4096), scheme, pieces) for scheme in SCHEMES}
    assert all(point.step_s > 0 for points in curves.values() for point in points)
    tokens = [point.tokens_per_chip for point in curves["fsdp"]]
    assert tokens == sorted(tokens, reverse=True)
    found = crossover(curves["fsdp"])
    assert found is None or found > 1


def test_a_node_is_joined_by_what_it_has() -> None:
    """Nobody is advised to widen a wire that the chip has not."""
    titles = {name: [knob.title for knob in knobs(parse_slice(f"{name}:8"))] for name in ("h100", "l40s", "mi300x")}
    assert "NVLink bandwidth" in titles["h100"]
    assert "PCIe bandwidth" in titles["l40s"]
    assert "Infinity Fabric bandwidth" in titles["mi300x"]
