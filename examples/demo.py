"""The main job in a minute: how to split LLaMA-3 70B over 2,048 TPU v5p, why, what would change it; how to serve it.

Each step is a `dscale` command that you can repeat with your own model and chips.
"""

import shlex
import sys

import dragonscale as ds
from dragonscale.commands.train.train_records import PlanReport
from dragonscale.faces.cli import main
from dragonscale.training.plan.plan import short_plan

JOB = ["llama3-70b", "--batch", "4Mi", "--seq", "8192", "--tokens", "15T"]
TPUS, GPUS = "v5p:8x16x16", "h100:1024"


def run() -> int:
    told(
        "How should LLaMA-3 70B be split over 2,048 TPU v5p, and what do 15T tokens take?", "train", *JOB, "--on", TPUS
    )
    code = main(["train", *JOB, "--on", TPUS, "--top", "1"])
    best = ds.train("llama3-70b", on=TPUS, batch="4Mi", seq=8192, tokens="15T", top=1).best
    if code or best is None:
        return code
    why(best)
    change(best)
    asked = ["llama3-70b", "--on", "h100:8", "--prompt", "2048", "--output", "512", "--tpot", "30ms", "--rate", "5/s"]
    told("And serving it: 5 requests a second, 30 ms a token?", "serve", *asked)
    code = main(["serve", *asked, "--top", "2"])
    print("\nYour own model and chips: dscale train --help; README.md; docs/start/quickstart.md.")
    return code


def told(question: str, *command: str) -> None:
    bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")
    print(f"\n{bold}{question}{plain}\n$ dscale {shlex.join(command)}\n", flush=True)


def why(best: PlanReport) -> None:
    """The largest term as a formula, and the batch below which the network would bound the step."""
    plan = short_plan(best.plan)
    told("Why?", "explain", "train", plan, "--model", "llama3-70b", "--on", TPUS, "--batch", "4Mi")
    explained = ds.explain("train", plan, model="llama3-70b", on=TPUS, batch="4Mi")
    largest = max((line for line in explained.lines if line.unit == "s"), key=lambda line: line.value_si)
    print(f"{largest.name} = {largest.formula}\n{' ' * len(largest.name)} = {largest.numbers} = {largest.value}")
    for crossover in explained.crossovers:
        print(crossover[:1].upper() + crossover[1:] + ".")


def change(best: PlanReport) -> None:
    """The same run on other chips."""
    told("What would change it? Half as many H100s, for one", "train", *JOB, "--on", GPUS)
    other = ds.train("llama3-70b", on=GPUS, batch="4Mi", seq=8192, tokens="15T", top=1).best
    for name, one in ((TPUS, best), (GPUS, other)):
        if one is not None and one.days is not None and one.cost_usd is not None:
            print(f"{name:12} {one.step_s:.2f}s a step, {one.own_mfu:.0%} MFU, {one.days:.0f} days of steps, ", end="")
            print(f"${one.cost_usd / 1e6:.1f}M: {short_plan(one.plan)}, bound by {one.bound_by}")


if __name__ == "__main__":
    raise SystemExit(run())
