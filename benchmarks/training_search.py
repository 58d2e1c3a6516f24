"""How fast the space of training plans is searched: plans per second, two large spaces, and the cost per plan as spaces
grow.

A plan evaluation is complete: the memory of the fullest chip by part, and the expected time of a step. For comparison,
Calculon's space for GPT-3 175B on 4096 A100s has 7.5 million points and takes it twelve core-hours.
"""

import resource
import time

from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.training.cost.evaluation import Job, judge_one, make_job
from dragonscale.training.search.search import Found, search

LARGE = (
    ("gpt3-175b", "a100:4096", 4096, 2048),
    ("llama3-405b", "h100:16384", 2048, 8192),
    ("deepseek-v3", "h800:2048", 15360, 4096),
)
GROWING = (8, 64, 512, 4096, 16384)


def timed(job: Job) -> tuple[Found, float]:
    """A search over the whole space, and its CPU seconds."""
    start = time.process_time()
    found = search(job)
    return found, time.process_time() - start


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> None:
    search(make_job(load_model("llama3-8b"), parse_slice("h100:8"), 64, 4096))
    print("the whole space, one process")
    for model, on, batch, sequence in LARGE:
        job = make_job(load_model(model), parse_slice(on), batch, sequence)
        found, seconds = timed(job)
        rate = found.judged / seconds / 1e6
        print(
            f"  {model} on {on}: {found.judged:,} plans in {seconds:.2f} CPU-s ({found.seconds:.2f} s), "
            f"{rate:.2f} million per second, {found.feasible:,} feasible, peak memory {megabytes():.0f} MB"
        )
        if found.best:
            print(f"    best: {found.best[0].plan}: {found.best[0].seconds:.3f} s")
    print("cost per plan as the space grows (llama3-70b, 8192 tokens, as many sequences as chips)")
    for chips in GROWING:
        job = make_job(load_model("llama3-70b"), parse_slice(f"h100:{chips}"), max(chips, 64), 8192)
        found, seconds = timed(job)
        each = seconds / found.judged * 1e6
        print(f"  {chips:>6} chips: {found.judged:>10,} plans, {each:6.2f} us each")
    plan = found.best[0].plan
    start = time.process_time()
    for _ in range(5):
        judge_one(job, plan)
    print(f"one plan at a time: {(time.process_time() - start) / 5 * 1e6:,.0f} us each")


if __name__ == "__main__":
    main()
