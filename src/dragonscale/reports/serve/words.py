"""The flags of `dscale serve` as they were written."""

from dataclasses import dataclass, replace

from dragonscale.serving.plan_file import SavedPlan


@dataclass(frozen=True)
class ServeQuestion:
    """The flags as they were written."""

    model: str
    on: str = ""
    prompt: str = "2048"
    output: str = "512"
    ttft: str = ""
    tpot: str = ""
    rate: str = ""
    engine: str = ""
    weights: str = ""
    compute: str = ""
    kv: str = ""
    attention: str = ""
    dtype: str = ""
    quantize: str = ""
    plan: str = ""
    batch: str = ""
    cached: float = 0.0
    spread: str = ""
    speculate: str = ""
    drafts: int | None = None
    draft: str = ""
    disaggregate: bool = False
    top: int = 0
    max_seqs: int | None = None
    token_budget: int | None = None
    memory_fraction: float | None = None
    price: str = ""
    force: bool = False


def as_saved(question: ServeQuestion, saved: SavedPlan | None) -> ServeQuestion:
    """The question with what its flags leave as it usually is taken from a plan file: lengths, rate, targets, drafts, limits."""
    if saved is None:
        return question
    traffic, drafts = saved.traffic, saved.speculation
    words = {
        "prompt": str(traffic.prompt or ""), "output": str(traffic.output or ""), "cached": traffic.cached, "rate": traffic.rate,
        "ttft": saved.targets.ttft, "tpot": saved.targets.tpot, "max_seqs": saved.launch.max_seqs,
        "token_budget": saved.launch.token_budget, "memory_fraction": saved.launch.memory_fraction,
        "speculate": drafts.acceptance, "drafts": drafts.drafts or None, "draft": drafts.draft,
    }  # fmt: skip
    left = {name: value for name, value in words.items() if value and getattr(question, name) == getattr(USUAL, name)}
    return replace(question, **left)


USUAL = ServeQuestion("")
