"""The flags of `dscale serve` as they were written."""

from dataclasses import dataclass


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
