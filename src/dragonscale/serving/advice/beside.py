"""What a given configuration is to be held against: one chip alone, and the checkpoint's own formats."""

from dataclasses import dataclass, replace

from dragonscale.physics.hardware import Slice
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.serving.advice.formats import FormatRequest
from dragonscale.serving.advice.job import ServingJob
from dragonscale.serving.advice.search import is_narrower
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.space.frontier import Config, judge
from dragonscale.serving.space.space import one_plan, slices_of

# Bytes of a cached number in 16 bits.
SIXTEEN_BITS = 2

# Part by which times may differ and are called the same.
SAME = 0.05


@dataclass(frozen=True)
class HeldAgainst:
    """Another configuration at the same batch: what it is, and how it compares with the one that was asked for."""

    what: str
    config: Config
    speed: float
    """Tokens/s of a user of the configuration that was asked for, over those of this one."""

    @property
    def is_same(self) -> bool:
        """Whether nobody would notice the difference."""
        return abs(self.speed - 1) <= SAME


def beside(job: ServingJob, config: Config) -> list[HeldAgainst]:
    """What a plan of several chips or a narrower format is to be held against, at a batch that was asked for."""
    if job.batch is None or config.is_fleet or job.ask.output == 1:
        return []
    rows: list[HeldAgainst] = []
    if job.plan is not None and config.chips > 1:
        degrees = dict.fromkeys(("tensor", "width", "data", "expert", "context", "pipe"), 1)
        rows += _judged(job, config, "one chip", replace(config.plan, **degrees), slices_of(config.piece.chip)[0])
    if is_narrower(config, job.model):
        stored = replace(job, formats=FormatRequest(), plan=None).formats_on(config.piece.chip, config.engine)
        for formats in stored[:1]:
            plan = formats.applied_to(config.plan)
            rows += _judged(job, config, f"the checkpoint's {plan.weights}", plan, config.piece)
    if job.formats.kv and dtype_bytes(config.plan.kv) < SIXTEEN_BITS:
        kv = "bf16"
        rows += _judged(job, config, f"a {kv} KV cache", replace(config.plan, kv=kv), config.piece)
    return rows


def _judged(job: ServingJob, config: Config, what: str, plan: ServingPlan, piece: Slice) -> list[HeldAgainst]:
    """Another plan at the same batch; nothing where it does not fit."""
    engine = job.engine_on(config.piece.chip, config.engine, plan.chips)
    judged = judge(job.model, one_plan(piece, plan), engine, job.ask, [config.batch], job.draft_by(engine.name))
    return [HeldAgainst(what, other, float(other.state.tpot) / float(config.state.tpot)) for other in judged]
