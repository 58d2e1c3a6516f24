"""Solutions of the introduction."""

from typing import Any

from dragonscale.course.closed_forms.rules_of_thumb import run_seconds
from dragonscale.models.attention import Attention
from dragonscale.models.ffn import Moe
from dragonscale.models.layer import Layer
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import Verdict, judge_one, make_job
from dragonscale.training.plan.plan import Plan
from tests.book.casebook import solves

EXPERTS = Transformer("mixture", 4096, 32000, (Layer(Attention(32, 8, 128), Moe(8, 2, 14336)),) * 8)
JOB = make_job(EXPERTS, parse_slice("h100:16"), batch=64, sequence=4096)


def judged(**settings: Any) -> Verdict:
    return judge_one(JOB, Plan(**settings))


def work(verdict: Verdict) -> float:
    """Seconds of the blocks' matmuls on one chip."""
    seconds = verdict.ledger.total("bound_s", lambda line: line.section == "block" and line.kind.endswith("matmul"))
    return first_number(seconds)


@solves("index.technique_taxonomy")
def techniques(_: dict[str, Any]) -> dict[str, Any]:
    """Each way to split divides a chip's work in two; each way to save memory needs less of it."""
    splits = {"data": "data", "tensor": "tensor", "pipeline": "pipe", "expert": "expert"}
    alone = work(judged())
    halves = [name for name, axis in splits.items() if abs(work(judged(**{axis: 2})) / alone - 0.5) < 0.01]
    base = {"data": 1, "fsdp": 2, "microbatch": 4, "zero": 0}
    savings = {
        "rematerialization": {"remat": "block"},
        "optimizer/model sharding (ZeRO)": {"zero": 3},
        "host offload": {"remat": "offload"},
        "gradient accumulation": {"microbatch": 1},
    }
    most = first_number(judged(**base).hbm_bytes)
    return {
        "parallelism": halves,
        "memory": [name for name, change in savings.items() if first_number(judged(**base | change).hbm_bytes) < most],
    }


@solves("index.roofline_tradeoff")
def quality_against_efficiency(given: dict[str, Any]) -> dict[str, Any]:
    slower = run_seconds(1.0, 1, 1.0) / run_seconds(1.0, 1, 1.0, mfu=given["eff"])
    return {"net": given["gain"] * slower}
