"""The search finds what trying every plan one by one finds, and says why the others cannot be run."""

import itertools
from dataclasses import replace

import numpy
import pytest

from dragonscale.models import load_model
from dragonscale.physics.hardware import Slice, parse_slice
from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import DEGREES, Job, degrees_of, judge, judge_one, make_job, problems
from dragonscale.training.plan.plan import AXES, POLICIES, Plan
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.plan.stages import layout_for
from dragonscale.training.search.fast import PlanRows, choose, cost_rows, judge_rows
from dragonscale.training.search.search import batches_of, blocks, search, space_size
from dragonscale.training.search.space import LEAST_TOKENS, Space, divisors, even_chunks, meshes, misfits, rows_of


@pytest.fixture(scope="module")
def small() -> Job:
    return make_job(load_model("llama3-8b"), parse_slice("h100:8"), 8, 2048)


SMALL = Space(remat=("selective", "block"), zero=(0, 1, 3), schedule=("1f1b", "interleaved", "zb-h1"))


def every_plan(job: Job, space: Space) -> list[Plan]:
    """The space written out by hand: all sizes of all axes, kept where everything divides."""
    chips, layers = job.slice.chips, job.model.n_layers
    found = []
    for sizes in itertools.product(divisors(chips), repeat=len(AXES)):
        mesh = dict(zip(AXES, sizes, strict=True))
        plan = replace(Plan(), **mesh)
        heads = 32 % plan.tensor == 0 and 8 % plan.tensor == 0 and 14336 % plan.tensor == 0
        if plan.chips != chips or not heads or plan.expert > 1 or plan.pipe > layers:
            continue
        if job.batch % plan.replicas or job.sequence % (2 * plan.context * plan.tensor):
            continue
        if plan.context > 1 and job.sequence // plan.context < LEAST_TOKENS:
            continue
        for microbatch in divisors(job.batch // plan.replicas):
            found += [replace(plan, microbatch=microbatch, **words) for words in every_word(job, space, plan)]
    found = [plan for plan in found if runs(job, plan)]
    return [replace(plan, layout=layout_for(layers, plan.pipe, plan.virtual)) for plan in found]


def every_word(job: Job, space: Space, plan: Plan) -> list[dict]:
    found = []
    for remat, zero, way in itertools.product(space.remat, space.zero, space.context_by):
        split = plan.fsdp * plan.context
        if (split > 1) != (zero > 0) or (plan.context == 1 and way != "gather"):
            continue
        words = {"remat": remat, "zero": zero, "context_by": way}
        if plan.pipe == 1:
            found.append(words | {"schedule": "1f1b"})
            continue
        found += [words | {"schedule": name} for name in space.schedule if name != "interleaved"]
        if "interleaved" in space.schedule:
            chunks = even_chunks(job.model.n_layers, plan.pipe)
            found += [words | {"schedule": "interleaved", "virtual": count} for count in chunks]
    return found


def runs(job: Job, plan: Plan) -> bool:
    """Interleaving takes microbatches in rounds of the stages; what cannot run is not offered."""
    return plan.schedule != "interleaved" or job.batch // (plan.replicas * plan.microbatch) % plan.pipe == 0


def test_the_best_plan_is_the_best_of_all(small: Job) -> None:
    """One by one, as slowly as that is; the front below is compared over a larger space."""
    small = replace(small, slice=parse_slice("h100:4"), batch=4)
    space = replace(SMALL, remat=("block",), zero=(0, 3), schedule=("1f1b", "interleaved"))
    plans = every_plan(small, space)
    found = search(small, space, 3, slack=0.0)
    assert found.judged == len(plans) == space_size(small, space)
    times = {}
    for plan in plans:
        verdict = judge_one(small, plan)
        if not problems(small, plan, verdict):
            times[plan] = first_number(verdict.seconds)
    assert found.feasible == len(times)
    assert found.best[0].seconds == pytest.approx(min(times.values()), rel=1e-9)
    assert times[found.best[0].plan] == pytest.approx(found.best[0].seconds, rel=1e-9)
    assert found.fastest == found.best[0]
    assert all(times[one.plan] == pytest.approx(one.seconds, rel=1e-9) for one in found.best)


def test_the_front_is_that_of_all_plans(small: Job) -> None:
    found = search(small, SMALL, 1)
    points = {}
    for words, group in itertools.groupby(
        sorted(every_plan(small, SMALL), key=lambda p: (p.remat, p.zero, p.schedule, p.context_by, p.layout)),
        key=lambda p: (p.remat, p.zero, p.schedule, p.context_by, p.layout),
    ):
        plans = list(group)
        verdict = judge(small, plans[0], degrees_of(plans))
        held = numpy.broadcast_to(verdict.hbm_bytes, len(plans))
        for plan, seconds, size in zip(plans, verdict.seconds, held, strict=True):
            if size <= small.slice.chip.hbm.capacity:
                points[plan] = (float(seconds), float(size))
        assert words
    best = []
    for cost in sorted(set(points.values())):
        if not best or cost[1] < best[-1][1]:
            best.append(cost)
    assert [one.seconds for one in found.front] == pytest.approx([cost[0] for cost in best], rel=1e-9)
    assert [one.hbm_bytes for one in found.front] == pytest.approx([cost[1] for cost in best], rel=1e-9)


CASES = [
    ("llama3-70b", "h100:256", 256, 8192, "generic"),
    pytest.param("llama3-70b", "v5p:4x4x8", 256, 8192, "maxtext", marks=pytest.mark.slow),
    pytest.param("mixtral-8x7b", "h100:64", 128, 4096, "megatron-core", marks=pytest.mark.slow),
    pytest.param("deepseek-v3", "h800:256", 512, 4096, "generic", marks=pytest.mark.slow),
    ("gpt2-xl", "h100:64", 1152, 1024, "dragonscale"),
    ("mixtral-8x7b", "h100:64", 128, 4096, "dragonscale"),
]


@pytest.mark.parametrize(("model", "on", "batch", "sequence", "stack"), CASES)
def test_a_plan_alone_is_the_same_in_a_million(model: str, on: str, batch: int, sequence: int, stack: str) -> None:
    job = make_job(load_model(model), parse_slice(on), batch, sequence, stack)
    space = Space()
    chance = numpy.random.default_rng(0)
    checked = 0
    pieces = list(blocks(job, rows_of(job, space)))
    for kind, (folded, undivided), block in (pieces[place] for place in {0, len(pieces) // 2, len(pieces) - 1}):
        rows = PlanRows(job, block, folded, dict(undivided))
        for names, picked in batches_of(job, space, block):
            chosen = choose(rows, *picked)
            options = kind.words(space)
            words = replace(options[chance.integers(len(options))], schedule=str(chance.choice(names)))
            costs = cost_rows(rows, words, POLICIES).at(chosen.places)
            least = [
                cost_rows(rows, replace(words, remat=one), (one,), bound=True).at(chosen.places) for one in POLICIES
            ]
            judged = judge_rows(rows, words, POLICIES, chosen, costs, least)
            for place in chance.integers(0, len(chosen), 3):
                line = int(chance.integers(0, len(POLICIES)))
                plan = replace(words, remat=POLICIES[line])
                plan = replace(plan, **{name: int(chosen.degrees[name][place]) for name in DEGREES})
                alone = judge_one(job, plan)
                assert judged.seconds[line][place] == pytest.approx(first_number(alone.seconds), rel=1e-9)
                held = numpy.broadcast_to(judged.hbm_bytes[line], len(chosen))[place]
                assert held == pytest.approx(first_number(alone.hbm_bytes), rel=1e-9)
                checked += 1
    assert checked >= 9


def test_every_mesh_has_all_chips_and_divides(small: Job) -> None:
    table = meshes(small)
    assert all(numpy.prod([table[name] for name in AXES], axis=0) == 8)
    assert len({tuple(row) for row in zip(*table.values(), strict=True)}) == len(table["pipe"])


def test_nothing_feasible_names_the_nearest() -> None:
    job = make_job(load_model("llama3-70b"), parse_slice("h100:8"), 64, 8192)
    found = search(job, Space(remat=("block",), schedule=("1f1b",)))
    assert not found.best
    assert found.feasible == 0
    assert found.misses["memory"] == found.judged
    assert found.nearest is not None
    least = first_number(judge_one(job, found.nearest.plan).hbm_bytes)
    assert least == pytest.approx(found.nearest.hbm_bytes)
    assert least > job.slice.chip.hbm.capacity


def test_a_batch_that_does_not_divide_leaves_nothing() -> None:
    job = make_job(load_model("llama3-8b"), parse_slice("h100:64"), 7, 2047)
    assert search(job, Space(fixed={"pipe": 1})).searched == 0


def test_pinned_settings_are_kept(small: Job) -> None:
    found = search(small, Space(fixed={"tensor": 2, "pipe": 2, "microbatch": 1, "virtual": 4}), 5)
    assert found.best
    plans = [one.plan for one in (*found.best, *found.front)]
    assert all((p.tensor, p.pipe, p.microbatch, p.virtual, p.schedule) == (2, 2, 1, 4, "interleaved") for p in plans)


@pytest.mark.parametrize(
    ("fact", "factor"),
    [("memory.hbm.capacity", 1.5), ("levels.node.bandwidth", 2.0), ("memory.hbm.bandwidth", 2.0)],
)
def test_better_hardware_is_never_slower_and_never_infeasible(small: Job, fact: str, factor: float) -> None:
    space = Space(remat=("none", "block"), schedule=("1f1b",))
    chip = small.slice.chip
    better = chip.with_facts(**{fact: float(chip.facts[fact].value) * factor})
    before = search(small, space, 1, slack=0.0)
    after = search(replace(small, slice=Slice(better, small.slice.shape)), space, 1, slack=0.0)
    assert after.feasible >= before.feasible
    assert after.best[0].seconds <= before.best[0].seconds * (1 + 1e-9)


def test_progress_is_told(small: Job) -> None:
    told: list[tuple[int, int]] = []
    found = search(small, replace(SMALL, remat=("block",)), 1, lambda done, total: told.append((done, total)))
    assert told[-1] == (found.judged, found.judged)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tensor=3", "does not divide the model's 32 query heads"),
        ("context=3", "does not divide over context=3"),
        ("expert=2", "no experts"),
        ("pipe=2,virtual=2,schedule=1f1b", "schedule=interleaved"),
        ("pipe=4,microbatch=4,virtual=2,schedule=interleaved", "in rounds of pipe=4, and there are 2"),
        ("pipe=8,schedule=dualpipe", "at least 2 x 8"),
        ("pipe=8,virtual=8,schedule=interleaved,layout=ends", "need more than the model's"),
    ],
)
def test_a_plan_outside_the_space_says_why(small: Job, text: str, expected: str) -> None:
    assert any(expected in reason for reason in misfits(small, parse_plan(text)))


def test_every_plan_that_is_found_is_in_the_space(small: Job) -> None:
    found = search(small, Space(), 20)
    for one in (*found.best, *found.front):
        assert not misfits(small, one.plan)
        assert not problems(small, one.plan, judge_one(small, one.plan))


def test_between_pods_lie_replicas_or_stages() -> None:
    """Unless a size is asked for: then weights may be sharded over the data centre's network."""
    job = make_job(load_model("llama3-8b"), parse_slice("v5e:4x4*2"), 64, 2048)
    mesh = meshes(job)
    assert len(mesh["data"]) > 0
    assert all((mesh["data"] * mesh["pipe"]) % 2 == 0)
    assert any(meshes(job, Space(fixed={"fsdp": 32}))["fsdp"] == 32)


def test_each_device_of_a_chip_has_whole_sequences() -> None:
    job = make_job(load_model("llama3-8b"), parse_slice("tpu7x:2x2x1"), 64, 2048)
    rows = rows_of(job, Space())
    share = job.batch // (rows["data"] * rows["fsdp"] * rows["expert"])
    assert all((rows["microbatch"] % 2 == 0) | (share % 2 == 1))
    assert 1 in rows_of(job, Space(fixed={"microbatch": 1}))["microbatch"]


def test_host_memory_is_a_last_resort() -> None:
    """It is not tried while something else fits, and is where nothing does."""
    job = make_job(load_model("llama3-8b"), parse_slice("h100:8"), 8, 32768)
    space = Space(fixed={"fsdp": 8, "microbatch": 1})
    found = search(job, space, 1)
    assert found.best[0].plan.remat != "offload"
    away, kept = (
        first_number(judge_one(job, parse_plan(f"fsdp=8,remat={name}")).hbm_bytes) for name in ("offload", "block")
    )
    assert away < kept
    facts = {"memory.hbm.visible": (away + kept) / 2}
    small = replace(job, slice=Slice(job.slice.chip.with_facts(**facts), job.slice.shape))
    assert search(small, space, 1).best[0].plan.remat == "offload"
    assert not search(small, replace(space, remat=("none", "block")), 1).best
