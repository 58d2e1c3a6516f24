"""Small jobs that the tests of a training step share."""

from dataclasses import replace

from dragonscale.models import simple
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import Job, Verdict, judge_one, make_job
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.plan_file import parse_plan

DENSE = simple("dense", d_model=4096, d_ff=14336, n_layers=32, n_heads=32, n_kv_heads=8, vocab=128256)
SPARSE = simple(
    "sparse",
    d_model=2048,
    d_ff=768,
    n_layers=16,
    n_heads=16,
    n_kv_heads=4,
    vocab=32000,
    n_experts=64,
    experts_per_token=8,
)


def job_of(where: str = "h100:64", model=DENSE, batch: int = 256, sequence: int = 4096, stack: str = "generic") -> Job:
    """A job on a slice."""
    return make_job(model, parse_slice(where), batch, sequence, stack)


def judged(plan: str | Plan, job: Job | None = None, **changes) -> Verdict:
    """A plan's verdict, with some of its settings changed."""
    one = parse_plan(plan) if isinstance(plan, str) else plan
    return judge_one(job or job_of(), replace(one, **changes))


def seconds(verdict: Verdict) -> float:
    """Its expected step."""
    return first_number(verdict.seconds)


def term(verdict: Verdict, name: str) -> float:
    """Seconds of a term that show in the step."""
    return verdict.ledger.by("term", "exposed_s").get(name, 0.0)


def sent(verdict: Verdict, name: str) -> float:
    """Bytes that a term sends."""
    return verdict.ledger.by("term", "wire_bytes").get(name, 0.0)


def held(verdict: Verdict, name: str = "") -> float:
    """Bytes of a part of its memory, or of all."""
    return verdict.ledger.memory.get(name, 0.0) if name else first_number(verdict.hbm_bytes)
