"""A published training run beside what the planner says: the same plan judged, and the plan it would pick instead."""

from dataclasses import dataclass

from dragonscale.commands.train.plans import plan_report
from dragonscale.commands.train.train_records import PlanReport
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.training.cost.evaluation import make_job
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.search.search import search
from dragonscale.training.search.space import Space, parse_space


@dataclass(frozen=True)
class PublishedRun:
    """What was published: the measured step, or the rate of each chip; `fix` is what the planner must keep too."""

    title: str
    source: str
    model: str
    on: str
    sequences: int
    seq: int
    stack: str
    plan: str
    step_s: float | None = None
    flops_per_s: float | None = None
    fix: str = ""


def shown(name: str, report: PlanReport, measured: float | None) -> str:
    error = f", {report.step_s / measured - 1:+.1%} against the measured step" if measured else ""
    fits = "" if report.feasible else f"; {'; '.join(report.problems)}"
    return (
        f"  {name}: {report.step_s:.2f} s (at datasheet rates {report.lower_s:.2f} to {report.upper_s:.2f}), MFU "
        f"{report.mfu:.1%}, "
        f"{report.hbm_bytes / 1e9:.0f} GB{error}{fits}\n    {report.advice}"
    )


def compare(run: PublishedRun) -> None:
    """Print a run, its plan as the planner judges it, and the planner's own."""
    job = make_job(load_model(run.model), parse_slice(run.on), run.sequences, run.seq, run.stack)
    measured = run.step_s or job.model_flops / ((run.flops_per_s or 1.0) * job.slice.chips)
    mfu = job.model_flops / (measured * job.slice.flops)
    print(f"\n{run.title}\n  {run.source}")
    print(f"  measured: {measured:.2f} s, MFU {mfu:.1%}  ({run.plan})")
    print(shown("predicted", plan_report(job, parse_plan(run.plan)), measured))
    space = parse_space(run.fix) if run.fix else Space()
    found = search(job, space, 1)
    if found.best:
        best = found.best[0].plan
        print(f"  the planner's pick of {found.searched:,} plans: {best}")
        print(shown("predicted", plan_report(job, best), None))


SMALL = PublishedRun(
    "LLaMA-3.1 8B on eight TPU v6e",
    "AI-Hypercomputer/tpu-recipes, training/trillium/Llama3.1-8B-MaxText/v6e-8: 3.443 s a step",
    "llama3-8b",
    "v6e:2x4",
    24,
    8192,
    "maxtext",
    "fsdp=8,microbatch=3,remat=offload",
    3.443,
)

if __name__ == "__main__":
    compare(SMALL)
    print("\nLarger ones: examples/train_gpt3.py, examples/train_llama3.py, examples/train_deepseek_v3.py")
