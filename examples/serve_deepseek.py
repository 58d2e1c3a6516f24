"""DeepSeek-V3/R1 served with large expert parallelism, as published, beside what is predicted for the same plans.

Attention is split by batch (every chip has all of it), experts are dealt out over all chips, and prefill and decode
have pools of their own. SGLang's numbers are from a benchmark whose settings are known; DeepSeek's are averages of a
day in production (mixed lengths, cached prompts, load that follows the hour), so only their size can be compared.
"""

from dataclasses import dataclass

import numpy

from dragonscale.serving.iteration.deployment import deploy
from dragonscale.serving.iteration.phases import decode, iteration_cost, prefill
from dragonscale.serving.space.disaggregation import pools
from dragonscale.serving.space.frontier import Ask, Config, judge
from dragonscale.serving.space.space import Formats, Lot, stack

SGLANG = (
    "SGLang team, Deploying DeepSeek with PD Disaggregation and Large-scale EP on 96 H100 GPUs, lmsys.org, 2025-05-05"
)
DEEPSEEK = "DeepSeek, open-infra-index, day 6: V3/R1 inference system overview, 2025-03-01"
FORMATS = Formats("fp8", "fp8_block", "bf16")


@dataclass(frozen=True)
class Published:
    """A pool and the tokens per second of each of its chips. `tokens` is a prompt's length, of which a part may be
    `cached` (and is counted as the source does), or what a decoding sequence holds; `batch` counts sequences on each
    chip in a decode step, 0 for prefill with 16,384 tokens a pass."""

    title: str
    source: str
    on: str
    ways: int
    tokens: int
    batch: int
    per_chip: float
    cached: float = 0.0


POOLS = (
    Published("prefill, prompts of 1,024", SGLANG, "h100:32", 32, 1024, 0, 57674 / 8),
    Published("prefill, prompts of 2,048", SGLANG, "h100:32", 32, 2048, 0, 54543 / 8),
    Published("prefill, prompts of 4,096", SGLANG, "h100:32", 32, 4096, 0, 50302 / 8),
    Published("decode, 256 a chip with 2,000 to 2,100 tokens", SGLANG, "h100:72", 72, 2050, 256, 22282 / 8),
    Published(
        "prefill in production: 56.3% of the tokens cached (prompts of 4,096 are assumed)",
        DEEPSEEK,
        "h800:32",
        32,
        4096,
        0,
        73700 / 8,
        0.563,
    ),
    Published(
        "decode in production: 4,989 tokens cached, 20 to 22 tokens/s for a user",
        DEEPSEEK,
        "h800:144",
        144,
        4989,
        88,
        14800 / 8,
    ),
)


def predicted(pool: Published) -> tuple[float, float]:
    """Seconds of an iteration, and tokens per second of each chip."""
    plan = f"tensor=1,data={pool.ways},expert={pool.ways},weights=fp8,compute=fp8_block"
    deployment = deploy("deepseek-v3", pool.on, plan, "sglang-ep")
    if pool.batch:
        step = iteration_cost(deployment, decode(pool.batch * pool.ways, pool.tokens)).expected
        return float(numpy.ravel(step)[0]), pool.batch / float(numpy.ravel(step)[0])
    new = round(pool.tokens * (1 - pool.cached))
    together = max(16384 // new, 1)
    taken = iteration_cost(deployment, prefill(new, together * pool.ways, pool.tokens - new)).expected
    return float(numpy.ravel(taken)[0]), together * pool.tokens / float(numpy.ravel(taken)[0])


def largest(on: str, ways: int, ask: Ask) -> Config:
    """A pool with its largest batch."""
    deployment = deploy("deepseek-v3", on, f"tensor=1,data={ways},expert={ways}", "sglang-ep")
    lot = Lot((deployment.piece,), stack([deployment.plan], FORMATS, "copy"))
    return judge(deployment.model, lot, deployment.engine, ask)[-1]


def ratio() -> None:
    """How many prefill pools feed a decode pool, and what the caches' journey takes."""
    print("\nPools of 32 for prefill and of 72 for decode, prompts of 2,000 tokens")
    for output in (100, 500, 2000):
        ask = Ask(2000, output, apart=True)
        prefilling, decoding = (largest(on, ways, ask) for on, ways in (("h100:32", 32), ("h100:72", 72)))
        pair = pools(prefilling, decoding, ask, max_decodes=8)
        print(
            f"  answers of {output:>5,}: {pair.prefills:>2} feed {pair.decodes}, batch {pair.decode.batch // 72} "
            f"a chip; a cache of {pair.transfer_bytes / 1e6:.0f} MB "
            f"travels in {pair.transfer_s * 1e3:.1f} ms"
        )


def run() -> int:
    source = ""
    for pool in POOLS:
        if pool.source != source:
            source = pool.source
            print(f"\n{source}")
        seconds, rate = predicted(pool)
        print(f"  {pool.title}, EP{pool.ways} on {pool.on}")
        print(
            f"    published {pool.per_chip:,.0f} tokens/s per chip; predicted {rate:,.0f} "
            f"({rate / pool.per_chip - 1:+.0%}), "
            f"an iteration of {seconds * 1e3:.0f} ms"
        )
    ratio()
    return 0


if __name__ == "__main__":
    raise SystemExit(run())
