"""Which recommended plans our own program takes: what `dscale run train` and `dscale verify` say of each before they
start.

    python -m tools.accepted_plans --every 4
    python -m tools.accepted_plans --stack dragonscale

asks `dscale train` each job of tests/training/recommended_jobs.txt, puts the plan that is recommended to the checks of
both commands (nothing is compiled), and, where one refuses, the plan that the answer names instead: by how much it is
slower. At the end stand the refusals by reason.
"""

import argparse
import shlex
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from dragonscale.commands.train.train_records import PlanReport, TrainReport
from dragonscale.errors import REFUSED, InputError, sentence_of
from dragonscale.evidence.verify.planned import plan_of
from dragonscale.evidence.verify.records import Request
from dragonscale.models import load_model
from dragonscale.runtime.train.settings import Order, RunSettings, check
from dragonscale.training.plan.plan import short_plan
from tools.confirm_serving import asked

JOBS = Path(__file__).parents[1] / "tests" / "training" / "recommended_jobs.txt"
NEAR = 0.03
"""Of the recommended plan's step, how much slower a plan may be that our program takes instead."""


@dataclass(frozen=True)
class Acceptance:
    """A job, its recommended plan and why our program refuses it; the plan that is named instead, how much slower it
    is, and why that is refused."""

    job: str
    plan: str = ""
    run: str = ""
    verify: str = ""
    twin: str = ""
    slower: float = 0.0
    twin_refused: str = ""
    refused: str = ""

    @property
    def accepted(self) -> bool:
        """Whether both commands take the plan as it is."""
        return not (self.run or self.verify)

    @property
    def near(self) -> bool:
        """Whether they take it, or a plan about as fast."""
        return self.accepted or bool(self.twin and self.slower <= NEAR and not self.twin_refused)


def refusals(answer: TrainReport, one: PlanReport) -> tuple[str, str]:
    """Why `dscale run train` refuses a plan, and why `dscale verify` does; nothing where they take it."""
    model, work, where = answer.model, answer.workload, answer.slice
    settings = RunSettings(data=("none",), steps=1, batch=work.sequences, seq=work.seq, dtype=one.plan.dtype)
    request = Request("train", model, where, str(one.plan), work.sequences, work.seq)
    told = []
    for ask in (lambda: check(Order(model, where, one.plan, settings)), lambda: plan_of(request)):
        try:
            load_model(model)
            ask()
            told.append("")
        except InputError as error:
            told.append(str(error))
    return told[0], told[1] or told[0]


def accepted(line: str) -> Acceptance:
    """A job asked, and what both commands say of its answer."""
    try:
        report = asked(["train", *shlex.split(line)])
    except REFUSED as error:
        return Acceptance(line, refused=sentence_of(error))
    if not report.plans or not report.plans[0].feasible:
        return Acceptance(line, refused="nothing fits")
    best = report.plans[0]
    run, verify = refusals(report, best)
    named = report.verified or report.runs
    told = Acceptance(line, f"{best.stack}: {short_plan(best.plan)}", run, verify)
    if not (run or verify) or named is None:
        return told
    again = refusals(report, named)
    return Acceptance(line, told.plan, run, verify, short_plan(named.plan), named.step_s / best.step_s - 1, max(again))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="take every so many jobs")
    parser.add_argument("--stack", default="", help="ask with a stack instead of the one that people run there")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    lines = [line.removeprefix("* ") for line in JOBS.read_text().splitlines() if line and not line.startswith("#")]
    stack = f" --stack {given.stack}" if given.stack else ""
    named = [line if "--stack" in line and stack else line + stack for line in lines[:: given.every]]
    with ProcessPoolExecutor(given.jobs) as pool:
        found = []
        for one in pool.map(accepted, named):
            found.append(one)
            print(told(one), flush=True)
    report(found)
    print("of jobs in the usual format:")
    report([one for one in found if "--dtype" not in one.job])


def report(found: list[Acceptance]) -> None:
    """Refusals by reason, and how many plans are accepted."""
    answered = [one for one in found if not one.refused]
    for name in ("run", "verify"):
        for why, count in Counter(why for one in answered if (why := getattr(one, name))).most_common():
            print(f"{count:4d}  {name}: {why}")
    as_they_are, near = sum(one.accepted for one in answered), sum(one.near for one in answered)
    print(f"{len(answered)} of {len(found)} jobs answered; {as_they_are} accepted as they are, {near} with a near plan")


def told(one: Acceptance) -> str:
    """A job in a line or three."""
    if one.refused:
        return f"{one.job}\n    no plan: {one.refused}"
    said = "accepted" if one.accepted else f"run: {one.run or 'takes it'} | verify: {one.verify or 'takes it'}"
    twin = f"\n    instead {one.twin} {one.slower:+.1%} {one.twin_refused}" if one.twin else ""
    return f"{one.job}\n    {one.plan}: {said}{twin}"


if __name__ == "__main__":
    main()
