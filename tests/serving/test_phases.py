"""The physics of an iteration, over chips, models, formats and shardings: nothing beats its own bound, more work is
never quicker, a better memory never slower, and the simulator's table says what the cost function says."""

from dataclasses import replace

import numpy
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dragonscale.physics.hardware.chip import Memory
from dragonscale.serving.iteration.deployment import Deployment, deploy
from dragonscale.serving.iteration.phases import Iteration, decode, iteration_cost, prefill
from dragonscale.serving.iteration.step_table import StepTable
from tests.serving.deployments import Case, cases, deployed

NOISE = 1e-9


def seconds(deployment: Deployment, iteration: Iteration) -> numpy.ndarray:
    return numpy.ravel(iteration_cost(deployment, iteration).expected)


@settings(max_examples=150)
@given(
    case=cases(),
    decodes=st.integers(0, 600),
    keys=st.integers(1, 20000),
    queries=st.integers(1, 5),
    prompts=st.integers(0, 3),
    tokens=st.integers(1, 6000),
    past=st.integers(0, 9000),
)
def test_nothing_beats_its_bound(
    case: Case, decodes: int, keys: int, queries: int, prompts: int, tokens: int, past: int
) -> None:
    assume(decodes or prompts)
    deployment = deployed(case)
    cost = iteration_cost(deployment, Iteration(decodes, keys, queries, prompts, tokens, past))
    expected, lower, roofline, upper = (
        float(numpy.ravel(value)[0]) for value in (cost.expected, cost.lower, cost.roofline, cost.upper)
    )
    assert 0 < lower <= expected * (1 + NOISE)
    assert max(float(numpy.ravel(cost.compute)[0]), float(numpy.ravel(cost.memory)[0])) <= roofline * (1 + NOISE)
    assert lower <= upper * (1 + NOISE)
    for name, term in cost.terms.items():
        bound = float(numpy.ravel(term.roofline)[0])
        assert bound <= float(numpy.ravel(term.expected)[0]) * (1 + 1e-6), name
    for axes, wire in (
        cost.wires.items() if deployment.engine.collectives.slowdown >= 1 else ()
    ):  # else some of it hides
        assert float(numpy.ravel(wire.lower)[0]) <= float(numpy.ravel(wire.expected)[0]) * (1 + 1e-6), axes


@settings(max_examples=60)
@given(case=cases(), keys=st.integers(1, 8000), first=st.integers(1, 500), more=st.integers(1, 500))
def test_a_larger_batch_is_never_quicker(case: Case, keys: int, first: int, more: int) -> None:
    deployment = deployed(case)
    # A single row is compiled into loops, which an H200 runs more slowly than matmuls of several rows.
    assume(not (deployment.engine.program.loop_s and first <= deployment.plan.data))
    small, large = seconds(deployment, decode(numpy.array([first, first + more], float), keys))
    assert small <= large * 1.02  # a tile that is full may do a little better than one that is not


def with_bandwidth(deployment: Deployment, times: float) -> Deployment:
    chip = deployment.chip
    better = replace(chip, memory={**chip.memory, "hbm": Memory(chip.hbm.capacity, chip.bandwidth("hbm") * times)})
    return replace(deployment, piece=replace(deployment.piece, chip=better))


def test_a_step_bound_by_memory_follows_it() -> None:
    plain = deploy("llama3-70b", "v5e:2x4", "tensor=8,weights=int8")
    costs = [iteration_cost(one, decode(4, 2000)) for one in (plain, with_bandwidth(plain, 1.5))]
    assert costs[0].lower[0] == pytest.approx(1.5 * costs[1].lower[0])
    assert costs[0].expected[0] > 1.1 * costs[1].expected[0]


@settings(max_examples=20)
@given(case=cases(), batch=st.integers(1, 200), keys=st.integers(1, 8000), tokens=st.integers(16, 4000))
def test_more_bandwidth_is_never_slower(case: Case, batch: int, keys: int, tokens: int) -> None:
    deployment = deployed(case)
    quicker = with_bandwidth(deployment, 1.5)
    for iteration in (decode(batch, keys), prefill(tokens)):
        assert seconds(quicker, iteration)[0] <= seconds(deployment, iteration)[0] * (1 + 1e-6)
        bounds = [float(numpy.ravel(iteration_cost(one, iteration).lower)[0]) for one in (quicker, deployment)]
        assert bounds[0] <= bounds[1] * (1 + NOISE)


@settings(max_examples=20)
@given(case=cases(), batch=st.integers(1, 300), keys=st.integers(16, 8000), tokens=st.integers(16, 4000))
def test_longer_contexts_and_prompts_are_never_quicker(case: Case, batch: int, keys: int, tokens: int) -> None:
    deployment = deployed(case)
    short, long = seconds(deployment, decode(batch, numpy.array([keys, 2.0 * keys])))
    assert short <= long * (1 + 1e-6)
    short, long = seconds(deployment, prefill(numpy.array([tokens, 2.0 * tokens])))
    assert short <= long * 1.02


TABLES = (
    ("llama3-70b", "h100:4", "tensor=4,weights=fp8,compute=fp8,kv=fp8", "vllm"),
    ("llama3-8b", "v5e:2x2", "tensor=4", "jetstream"),
    ("deepseek-v3", "h200:8", "tensor=8,expert=8,weights=fp8,compute=fp8", "sglang"),
    ("llama3-70b", "h100:16", "tensor=8,pipe=2,weights=fp8,compute=fp8", "generic"),
)


@pytest.fixture(scope="module", params=TABLES, ids=lambda case: f"{case[0]}-{case[1]}")
def table(request: pytest.FixtureRequest) -> StepTable:
    return StepTable(deploy(*request.param))


def test_the_table_says_what_the_cost_function_says(table: StepTable) -> None:
    generator = numpy.random.default_rng(0)
    for _ in range(60):
        batch, keys = int(generator.integers(1, 400)), int(generator.integers(16, 8000))
        exact = seconds(table.deployment, decode(batch, keys))[0]
        assert table.step(batch, float(batch * keys)) == pytest.approx(exact, rel=0.03)
    for _ in range(40):
        tokens, past = int(generator.integers(16, 6000)), int(generator.integers(0, 8000))
        exact = seconds(table.deployment, prefill(tokens, 1, past))[0]
        assert table.step(0, 0.0, [(tokens, past)]) == pytest.approx(exact, rel=0.03)


def test_a_run_is_the_sum_of_its_steps(table: StepTable) -> None:
    for batch, keys, steps in ((1, 100, 50), (7, 1000, 300), (64, 4000, 100)):
        one_by_one = sum(table.step(batch, float(batch * (keys + done))) for done in range(steps))
        taken = table.run(batch, float(batch * keys), steps)
        assert taken == pytest.approx(one_by_one, rel=1e-6)
        assert table.steps_within(batch, float(batch * keys), taken * (1 + 1e-9)) in (steps, steps + 1)


def test_terms_add_up_to_the_expected_step() -> None:
    deployment = deploy("deepseek-v3", "h200:8", "data=8,expert=8,weights=fp8,compute=fp8", "generic")
    cost = iteration_cost(deployment, decode(64, 2000))
    parts = sum(float(numpy.ravel(term.expected)[0]) for term in cost.terms.values())
    parts += sum(float(numpy.ravel(wire.expected)[0]) for wire in cost.wires.values())
    parts += float(numpy.ravel(cost.sampling)[0]) + float(numpy.ravel(cost.host)[0])
    assert parts == pytest.approx(float(numpy.ravel(cost.expected)[0]), rel=1e-9)
    assert cost.wires, "experts on eight chips have to exchange tokens"


def test_many_plans_at_once_are_each_alone() -> None:
    plans = numpy.array([1.0, 2.0, 4.0, 8.0])
    many = deploy("llama3-70b", "h100:8", "tensor=8,weights=fp8,compute=fp8")
    wide = replace(many, plan=replace(many.plan, tensor=plans))
    together = seconds(wide, decode(numpy.full(4, 32.0), 2048))
    for ways, found in zip(plans, together, strict=True):
        alone = replace(many, plan=replace(many.plan, tensor=int(ways)))
        assert found == pytest.approx(seconds(alone, decode(32, 2048))[0], rel=1e-9)


def test_a_pipeline_pays_its_hops_and_idles_below_a_sequence_for_each_stage() -> None:
    formats = "weights=fp8,compute=fp8,kv=fp8"
    plans = (("h100:8", "tensor=8"), ("h100:16", "tensor=8,pipe=2"), ("h100:64", "tensor=8,pipe=8"))
    alone, two, eight = (deploy("llama3-70b", on, f"{plan},{formats}", "vllm") for on, plan in plans)
    one = [seconds(each, decode(1, 2000))[0] for each in (alone, two, eight)]
    assert one[0] + 1e-5 < one[1] < one[2] - 1e-4  # all layers one after the other, and one or seven hops
    assert seconds(eight, decode(8, 2000))[0] == pytest.approx(one[2])  # a sequence for each stage
    assert seconds(two, decode(256, 2000))[0] < seconds(alone, decode(256, 2000))[0]
    hops = next(line for line in iteration_cost(eight, decode(8, 2000)).lines if line.axes == ("pipe",))
    assert (hops.kind, hops.times) == ("permute", 7)
    assert (
        float(numpy.ravel(hops.wire_bytes)[0]) == 8192 * 2 / 8
    )  # each chip of a stage sends its part of a row in bf16
    # a prompt that fits an iteration is not cut for the stages' sake; longer ones are chunks that follow each other
    assert seconds(two, prefill(4096))[0] > seconds(alone, prefill(4096))[0]
    assert seconds(two, prefill(16384))[0] < 0.6 * seconds(alone, prefill(16384))[0]


def test_lines_that_sections_share_are_told_by_each() -> None:
    """Dense and MoE blocks attend alike, which is costed once: each has its lines, as often as it runs."""
    deployment = deploy("deepseek-v3", "h200:8", "tensor=8,expert=8,weights=fp8,compute=fp8_block")
    lines = iteration_cost(deployment, decode(64, 2000)).lines
    blocks = {section.name: section.repeat for section in deployment.decoding if section.repeat > 1}
    attending = [{line.what for line in lines if line.section == name and line.part == "attention"} for name in blocks]
    assert len(attending) == 2
    assert attending[0] == attending[1] != set()
    assert all(line.times == blocks[line.section] for line in lines if line.section in blocks)
