"""Recommendations run by the very command that they print: the table of docs/simulation.md.

    python -m tools.confirm_serving --jobs 2 --every 4
    python -m tools.confirm_serving --jobs 2 --write

asks `dscale serve` each question of `confirm_serving.txt`, reads the `dscale simulate` command of the answer as the
command line does, runs it and compares: mean TPOT and TTFT, output tokens per second, dollars for a million of them,
and whether the targets are met. More than 10% apart, or another verdict, is a failure, told in a line.
"""

import argparse
import shlex
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragonscale.app.serve.ask_serve import next_command
from dragonscale.app.serve.serve_records import ServeReport
from dragonscale.app.simulate.simulate_records import SimulateReport
from dragonscale.errors import REFUSED, sentence_of
from dragonscale.faces.cli.app import find_command
from dragonscale.faces.cli.arguments import read_arguments
from dragonscale.listener import Listener

ROOT = Path(__file__).parents[1]
QUESTIONS = Path(__file__).with_suffix(".txt")
PAGE = ROOT / "docs" / "simulation.md"
BEGIN, END = "<!-- confirmed -->", "<!-- /confirmed -->"
APART = 0.1
"""Of the simulated number, how far the answer's may be from it."""
LEAST, ROUNDS = 3000, 6
"""Requests of clients that run all the time: at least so many, and so many of each."""
MEASURES = {"tpot": "TPOT", "ttft": "TTFT", "tokens": "output tokens/s", "usd": "$/Mtok"}


@dataclass(frozen=True)
class Confirmation:
    """A question, the command that its answer prints, and what both say. `refused` is why there is nothing to run."""

    question: str
    command: str = ""
    answer: dict[str, float] | None = None
    simulated: dict[str, float] | None = None
    verdicts: tuple[bool | None, bool | None] = (None, None)
    refused: str = ""

    @property
    def apart(self) -> dict[str, float]:
        """The answer's numbers over the simulated ones, less one."""
        ours, run = self.answer or {}, self.simulated or {}
        return {name: ours[name] / run[name] - 1 for name in MEASURES if ours.get(name) and run.get(name)}

    @property
    def faults(self) -> list[str]:
        """What differs by too much."""
        ours, run = self.answer or {}, self.simulated or {}
        told = [
            f"{MEASURES[name]} {ours[name]:.4g}, simulated {run[name]:.4g} ({apart:+.0%})"
            for name, apart in self.apart.items()
            if abs(apart) > APART
        ]
        planned, found = self.verdicts
        return told + ([f"targets met: {planned}, simulated {found}"] if planned != found else [])


def asked(words: Sequence[str]) -> Any:
    """The answer to a command line, read as `dscale` reads it."""
    command, rest = find_command(list(words))
    assert command is not None, words
    return command.answer(command.question(**read_arguments(command.fields(), rest, command.name)), Listener())


def planned(report: ServeReport) -> dict[str, float]:
    """What an answer says of the fleet that its command runs."""
    best = report.first()
    if report.workload.rate_per_s:
        tokens = report.workload.rate_per_s * report.workload.output
        return _numbers(best.fleet_tpot_s or 0.0, best.fleet_ttft_s or 0.0, tokens, best.fleet_usd_per_mtok)
    tokens = best.output_tokens_per_s_per_chip * best.chips * best.copies
    return _numbers(best.tpot_s, best.ttft_s, tokens, best.cost_usd_per_mtok)


def _numbers(tpot: float, ttft: float, tokens: float, usd: float | None) -> dict[str, float]:
    return {"tpot": tpot, "ttft": ttft, "tokens": tokens, "usd": usd or 0.0}


def simulated(report: SimulateReport) -> tuple[dict[str, float], bool | None]:
    """The same of a run, and whether its means meet the targets."""
    means = {name: report.latency[name].mean for name in ("tpot_s", "ttft_s")}
    rates = report.rates
    met = all(means[name] <= limit for name, limit in report.slo.items()) if report.slo else None
    return _numbers(means["tpot_s"], means["ttft_s"], rates.output_tokens_per_s, rates.cost_usd_per_mtok), met


def confirm(question: str, requests: int = 0) -> Confirmation:
    """Ask, and run what the answer prints; with fewer `requests` where so many are given."""
    try:
        report: ServeReport = asked(["serve", *shlex.split(question)])
        command = next_command(report.asked, report)
        if not command:
            return Confirmation(question, refused=" ".join(report.notes) or "no configuration meets the targets")
        words = shlex.split(command)[1:]
        if "--clients" in words:
            least = max(requests or LEAST, ROUNDS * int(words[words.index("--clients") + 1]))
            words += ["--requests", str(least)]
        elif requests:
            words += ["--requests", str(requests)]
        run = asked([*words, "--no-capacity"])
    except REFUSED as error:
        return Confirmation(question, refused=sentence_of(error))
    found, met = simulated(run)
    work = report.workload
    wanted = True if work.ttft_s or work.tpot_s else None
    return Confirmation(question, command, planned(report), found, (wanted, met))


def questions(every: int = 1) -> list[str]:
    """Every N-th question."""
    lines = QUESTIONS.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")][::every]


KINDS = {
    "pools (`--prefill-on`)": lambda one: "--prefill-on" in one.command,
    "a fleet at a rate (`--rate`)": lambda one: "--rate" in one.question,
    "drafts (`--accept`)": lambda one: "--accept" in one.question,
    "a cached prefix (`--cached`)": lambda one: "--cached" in one.question,
    "a token budget (`--token-budget`)": lambda one: "--token-budget" in one.question,
    "clients that keep a batch full": lambda _: True,
}
"""Kinds of recommendations; one counts for the first that it is of."""


def table(made: Sequence[Confirmation]) -> str:
    """How many recommendations of each kind their own simulation confirms, and how far the others are off."""
    run = [one for one in made if one.command]
    kinds: dict[str, list[Confirmation]] = {name: [] for name in KINDS}
    for one in run:
        kinds[next(name for name, holds in KINDS.items() if holds(one))].append(one)
    head = [
        "recommendation",
        "run",
        "within 10%, same verdict",
        *(f"{name}: median, worst" for name in MEASURES.values()),
    ]
    rows = [head, ["---"] + ["--:"] * (len(head) - 1)]
    for name, own in (*kinds.items(), ("all", run)):
        if own:
            held = sum(not one.faults for one in own)
            rows.append(
                [name, f"{len(own)}", f"{held} ({held / len(own):.0%})", *(_spread(own, key) for key in MEASURES)]
            )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _spread(made: Sequence[Confirmation], name: str) -> str:
    apart = sorted(abs(one.apart[name]) for one in made if name in one.apart)
    return f"{apart[len(apart) // 2]:.1%}, {apart[-1]:.0%}" if apart else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="ask every N-th question only")
    parser.add_argument("--only", default="", help="questions that have this in them")
    parser.add_argument("--write", action="store_true", help="write the table of docs/simulation.md")
    options = parser.parse_args()
    made: list[Confirmation] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for one in pool.map(confirm, [one for one in questions(options.every) if options.only in one]):
            made.append(one)
            shown = " ".join(f"{name} {value:+.1%}" for name, value in one.apart.items())
            print(f"{'ok ' if not one.faults else 'BAD'} {one.question} | {one.refused or shown}", flush=True)
            for fault in one.faults:
                print(f"      {fault}", flush=True)
    print(table(made))
    if options.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{table(made)}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
