"""What no plan changes: the FLOPs of a step over all chips, the parameters whose state they hold, the tokens that
they see."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragonscale.models import simple
from dragonscale.models.transformer import count_parameters
from dragonscale.physics.rooflines import Cost, Rates, roofline
from dragonscale.training.cost.evaluation import judge_one
from dragonscale.training.plan.plan import Plan
from tests.training.plans import job_of

DENSE = simple("dense", d_model=2048, d_ff=8192, n_layers=8, n_heads=16, n_kv_heads=16, vocab=32768)
ROUTED = simple(
    "routed",
    d_model=2048,
    d_ff=1024,
    n_layers=8,
    n_heads=16,
    n_kv_heads=16,
    vocab=32768,
    n_experts=64,
    experts_per_token=4,
)
JOBS = [job_of("h100:64", model) for model in (DENSE, ROUTED)]
AXES = ("data", "fsdp", "tensor", "context", "expert")


@st.composite
def plans(draw: st.DrawFn, experts: bool) -> Plan:
    """64 chips dealt to axes, a factor of two at a time."""
    sizes = dict.fromkeys(AXES, 1)
    for _ in range(6):
        sizes[draw(st.sampled_from(AXES if experts else AXES[:-1]))] *= 2
    return Plan(**sizes, zero=draw(st.integers(0, 3)))


@settings(max_examples=12)
@given(data=st.data(), routed=st.booleans())
def test_all_chips_together_do_the_models_flops(data: st.DataObject, routed: bool) -> None:
    """With sequence parallelism none is done twice."""
    job = JOBS[routed]
    plan = data.draw(plans(routed).filter(lambda one: one.tensor <= 16))
    assert judge_one(job, plan).flops * 64 == pytest.approx(job.model_flops, rel=1e-9)


@settings(max_examples=12)
@given(data=st.data(), routed=st.booleans())
def test_every_parameter_has_its_state_on_as_many_chips_as_do_not_split_it(data: st.DataObject, routed: bool) -> None:
    """Twelve bytes of it: once under ZeRO for each data rank, and otherwise for each chip that sees other tokens.
    Experts lie apart over `expert` and `tensor`; vectors are small."""
    job = JOBS[routed]
    plan = data.draw(plans(routed).filter(lambda one: one.tensor <= 16))
    held = sum(line.bytes for line in judge_one(job, plan).ledger.held if line.part == "optimizer")
    experts = 64 * 3 * 2048 * 1024 * 8 if routed else 0
    rest = count_parameters(job.model).total - experts
    tokens = plan.data * plan.fsdp * plan.context
    copies = plan.data if plan.zero else tokens
    assert held * 64 == pytest.approx(
        12 * (rest * (copies if plan.zero else tokens * plan.expert) + experts * copies), rel=0.02
    )


@given(bf16=st.floats(1e6, 1e15), fp8=st.floats(1e6, 1e15), vector=st.floats(1e3, 1e12), moved=st.floats(1e3, 1e12))
def test_work_in_two_formats_on_one_unit_takes_the_sum_of_their_times(
    bf16: float, fp8: float, vector: float, moved: float
) -> None:
    """A matrix unit multiplies one format after the other; a roofline of both is that of each, added."""
    rates = Rates({("matrix", "bf16"): 1e15, ("matrix", "fp8"): 2e15, ("vector", "fp32"): 6e13}, {"hbm": 3e12})
    parts = [
        Cost(flops={("matrix", "bf16"): bf16}, bytes={"hbm": moved}),
        Cost(flops={("matrix", "fp8"): fp8, ("vector", "fp32"): vector}),
    ]
    seconds = roofline(parts[0] + parts[1], rates).seconds
    alone = [roofline(part, rates).seconds for part in parts]
    assert seconds["matrix"] == pytest.approx(alone[0]["matrix"] + alone[1]["matrix"])
    assert seconds["vector"] == alone[1]["vector"]
    assert seconds["hbm"] == alone[0]["hbm"]
