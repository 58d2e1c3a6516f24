"""A chat service sized end to end: the frontier picks a configuration for the targets, the simulator runs traffic
through as many replicas as it takes, and the targets are checked on what users would see.

The service: LLaMA-3 70B, prompts of 1,500 tokens and answers of 300 on average (lognormal), 30 requests a second in
bursts, most prompts beginning with one of a few hundred system prompts. First token within a second, then 40 ms a
token, for 95 of 100 requests.
"""

from dragonscale.models import load_model
from dragonscale.physics.hardware import load_chip
from dragonscale.serving.engine.checkpoint import legal_formats
from dragonscale.serving.engine.engine import load_engine
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.space.frontier import Ask, explore
from dragonscale.serving.space.ranking import best, replicas_for
from dragonscale.serving.space.space import slices_of
from dragonscale.simulation import Fleet, Gamma, Lognormal, OpenLoop, Prefixes, SimulationOptions, simulate
from dragonscale.simulation.deployed import pool_for

CHIPS = ("h100", "h200", "b200", "mi300x")
ASK = Ask(prompt=1500, output=300, ttft=1.0, tpot=0.04, rate=30.0)
MARGIN = 0.75
"""Plan for targets that are this much tighter: bursts and long prompts take the rest."""


def run(requests: int = 6000) -> int:
    model, engine = load_model("llama3-70b"), load_engine("vllm")
    chips = [load_chip(name) for name in CHIPS]
    tight = Ask(ASK.prompt, ASK.output, ASK.ttft * MARGIN, ASK.tpot * MARGIN, ASK.rate)
    # The first is the checkpoint's own; narrower ones follow.
    formats = {chip.name: legal_formats(engine.name, chip, model)[:1] for chip in chips}
    found = [one for chip in chips for one in explore(model, slices_of(chip, 16), formats[chip.name], engine, tight)]
    print(
        f"{len(found):,} configurations on {', '.join(CHIPS)}; the cheapest fleets that meet the targets with a margin:"
    )
    choices = best(found, tight, 3)
    for one in choices:
        count = replicas_for(one, ASK)
        print(
            f"  {count} x {one.piece} ({one.plan}), batches up to {one.batch}: TTFT {one.state.ttft:.2f} s, "
            f"TPOT {one.state.tpot * 1e3:.1f} ms, ${count * one.chips * one.piece.chip.price:.0f} an hour"
        )
    chosen = choices[0]
    replicas = replicas_for(chosen, ASK)
    traffic = OpenLoop(
        Gamma(ASK.rate, 2.0),
        requests,
        Lognormal(ASK.prompt, 1.0, 16000),
        Lognormal(ASK.output, 1.0, 4000),
        Prefixes(300, 512, share=0.8, skew=1.0),
    )
    deployment = Deployment(model, chosen.piece, chosen.plan, engine)
    while True:
        pool = pool_for(deployment, 20000, replicas, router="least_loaded", share_prefixes=True)
        result = simulate(Fleet(pool), traffic, SimulationOptions(seed=1, warmup=0.1, ttft_s=ASK.ttft, tpot_s=ASK.tpot))
        first, each = result.latency["ttft_s"].p95.value, result.latency["tpot_s"].p95.value
        print(
            f"{replicas} replicas under {requests:,} requests: TTFT p95 {first:.2f} s, TPOT p95 {each * 1e3:.1f} ms, "
            f"{result.throughput.good_share:.1%} good, prefix hits {result.cache_hit_rate:.0%}, busy "
            f"{result.utilisation:.0%}"
        )
        if first <= ASK.ttft and each <= ASK.tpot:
            print(f"{replicas} x {chosen.piece} ({chosen.plan}) meet the targets.")
            return 0
        if replicas >= 64:
            print("No fleet of this configuration meets the targets.")
            return 1
        replicas += max(1, replicas // 4)


if __name__ == "__main__":
    raise SystemExit(run())
