"""Recommendations run by the very command that they print: the table of docs/simulation.md.

    python -m tools.confirm_serving --jobs 2 --every 4
    python -m tools.confirm_serving --jobs 2 --write

asks `dscale serve` each question of `confirm_serving.txt`, reads the `dscale simulate` command of the answer as the
command line does, runs it with other random numbers than the answer had, and compares what the answer says: mean TPOT
and TTFT, output tokens per second, dollars for a million of them, the statistic of each target, and whether the targets
are met. More than 10% apart, or another verdict, is a failure, told in a line. The same is done with the answer of the
steady state's formulas alone, before any run confirms or corrects it.
"""

import argparse
import math
import shlex
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragonscale.commands.serve.answer import answer
from dragonscale.commands.serve.ask_serve import next_command
from dragonscale.commands.serve.serve_question import read_question
from dragonscale.commands.serve.serve_records import ServeReport
from dragonscale.commands.simulate.simulate_records import SimulateReport
from dragonscale.errors import REFUSED, sentence_of
from dragonscale.faces.cli.app import find_command
from dragonscale.faces.cli.arguments import read_arguments
from dragonscale.listener import Listener
from dragonscale.physics.units import parse

ROOT = Path(__file__).parents[1]
QUESTIONS = Path(__file__).with_suffix(".txt")
PAGE = ROOT / "docs" / "simulation.md"
BEGIN, END = "<!-- confirmed -->", "<!-- /confirmed -->"
APART = 0.1
"""Of the simulated number, how far the answer's may be from it."""
SEED, REQUESTS = 7, 3000
"""Of the run: the answer's own has 0, and in most cases a third as many."""
ROUNDS = 6
"""Requests of the run over those that are under way at once, at least."""
MEASURES = {"tpot": "TPOT", "ttft": "TTFT", "tokens": "output tokens/s", "usd": "$/Mtok"}


@dataclass(frozen=True)
class Comparison:
    """An answer's numbers, those of a run of its command, and whether the targets are met by the one and the other."""

    command: str
    answer: dict[str, float]
    simulated: dict[str, float]
    verdicts: tuple[bool, bool] = (True, True)

    @property
    def apart(self) -> dict[str, float]:
        """The answer's numbers over the simulated ones, less one."""
        ours, run = self.answer, self.simulated
        return {name: value / run[name] - 1 for name, value in ours.items() if value and run.get(name)}

    @property
    def faults(self) -> list[str]:
        """What differs by too much."""
        told = [
            f"{MEASURES.get(name, name)} {self.answer[name]:.4g}, simulated {self.simulated[name]:.4g} ({apart:+.0%})"
            for name, apart in self.apart.items()
            if abs(apart) > APART
        ]
        planned, found = self.verdicts
        return told + ([f"targets met: {planned}, simulated {found}"] if planned != found else [])


@dataclass(frozen=True)
class Confirmation:
    """A question with what its answer and the formulas alone say, each compared with a run. `refused` is why there is
    nothing to run."""

    question: str
    read: Comparison | None = None
    formulas: Comparison | None = None
    refused: str = ""


def read(words: Sequence[str]) -> tuple[Any, Any]:
    """The command of a command line and its question, read as `dscale` reads them."""
    command, rest = find_command(list(words))
    assert command is not None, words
    return command, command.question(**read_arguments(command.fields(), rest, command.name).values)


def asked(words: Sequence[str]) -> Any:
    """The answer to a command line."""
    command, question = read(words)
    return command.answer(question, Listener())


def planned(report: ServeReport) -> dict[str, float]:
    """What an answer says of the fleet that its command runs; percentiles and latencies beside TPOT and TTFT it knows
    from its own run alone."""
    best, run, work = report.first(), report.simulated, report.workload
    if work.rate_per_s:
        tokens = work.rate_per_s * work.output
        found = _numbers(best.fleet_tpot_s or 0.0, best.fleet_ttft_s or 0.0, tokens, best.fleet_usd_per_mtok)
    else:
        tokens = best.output_tokens_per_s_per_chip * best.chips * best.copies
        found = _numbers(best.tpot_s, best.ttft_s, tokens, best.cost_usd_per_mtok)
    return found | (_targeted(run.latency, work.statistics) if run else {})


def simulated(report: SimulateReport) -> dict[str, float]:
    """The same of a run."""
    means, rates = {name: report.latency[name].mean for name in ("tpot_s", "ttft_s")}, report.rates
    found = _numbers(means["tpot_s"], means["ttft_s"], rates.output_tokens_per_s, rates.cost_usd_per_mtok)
    return found | _targeted(report.latency, {name.removesuffix("_s"): at for name, at in report.statistics.items()})


def answered(run: SimulateReport) -> tuple[dict[str, float], bool]:
    """A run's numbers, and whether it meets its targets and keeps up with its rate."""
    return simulated(run), run.meets_slo is not False and not (run.load is not None and run.load.grows)


def _numbers(tpot: float, ttft: float, tokens: float, usd: float | None) -> dict[str, float]:
    return {"tpot": tpot, "ttft": ttft, "tokens": tokens, "usd": usd or 0.0}


def _targeted(latency: Any, statistics: dict[str, str]) -> dict[str, float]:
    """The statistics that targets are for, where they are not the mean TPOT and TTFT."""
    named = {f"{name} {at}": getattr(latency[f"{name}_s"], at) for name, at in statistics.items()}
    return {name: value for name, value in named.items() if name not in ("tpot mean", "ttft mean")}


def compared(report: ServeReport, requests: int = 0, known: Comparison | None = None) -> Comparison | None:
    """An answer beside a run of the command that it prints (one that is `known` already, if it is the same)."""
    command = next_command(report.asked, report)
    if not command:
        return None
    if known is not None and known.command == command:
        return replace(known, answer=planned(report))
    words = shlex.split(command)[1:]
    question = read(words)[1]
    rate = parse(question.rate, "count/s", "--rate") if question.rate else 0.0
    under_way = question.clients or math.ceil(rate * report.first().latency_s)
    words += ["--requests", str(max(requests or REQUESTS, ROUNDS * under_way))]
    run: SimulateReport = asked([*words, "--no-max-rate", "--seed", str(SEED)])
    found, holds = answered(run)
    return Comparison(command, planned(report), found, (True, holds))


def confirm(question: str, requests: int = 0) -> Confirmation:
    """Ask, and run what the answer prints; with so many `requests` where another number than usual is given."""
    try:
        given = read_question(read(["serve", *shlex.split(question)])[1])
        alone, report = (answer(given, brief=True, confirm=runs).came_from(given, []) for runs in (False, True))
        found = compared(report, requests)
        formulas = compared(alone, requests, found)
    except REFUSED as error:
        return Confirmation(question, refused=sentence_of(error))
    return Confirmation(question, found, formulas, "" if found else " ".join(report.notes))


def questions(every: int = 1) -> list[str]:
    """Every N-th question."""
    lines = QUESTIONS.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")][::every]


KINDS = {
    "pools (`--prefill-on`)": "--prefill-on",
    "a fleet at a rate (`--rate`)": "--rate",
    "drafts (`--accept`)": "--accept",
    "a cached prefix (`--prefixes`)": "--prefixes",
    "a token budget (`--token-budget`)": "--token-budget",
    "clients that keep a batch full": "",
}
"""Kinds of recommendations by a word of their command; one counts for the first that it is of."""


def table(made: Sequence[Confirmation]) -> str:
    """How many recommendations of each kind their own simulation confirms, and how far the others are off; and how many
    of the formulas' own."""
    run = [(one.read, one.formulas) for one in made if one.read is not None]
    kinds: dict[str, list[tuple[Comparison, Comparison | None]]] = {name: [] for name in KINDS}
    for pair in run:
        kinds[next(name for name, word in KINDS.items() if word in pair[0].command)].append(pair)
    spread = [f"{name}: median, worst" for name in MEASURES.values()]
    head = ["recommendation", "run", "within 10%, same verdict", *spread, "by formulas alone"]
    rows = [head, ["---"] + ["--:"] * (len(head) - 1)]
    for name, own in (*kinds.items(), ("all", run)):
        if own:
            read, alone = [one for one, _ in own], [one for _, one in own if one is not None]
            rows.append([name, f"{len(own)}", _held(read), *(_spread(read, key) for key in MEASURES), _held(alone)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _held(made: Sequence[Comparison]) -> str:
    held = sum(not one.faults for one in made)
    return f"{held} ({held / len(made):.0%})" if made else ""


def _spread(made: Sequence[Comparison], name: str) -> str:
    apart = sorted(abs(one.apart[name]) for one in made if name in one.apart)
    return f"{apart[len(apart) // 2]:.1%}, {apart[-1]:.0%}" if apart else ""


def lines_of(one: Confirmation) -> list[str]:
    """What there is to say of a question: how far its answer is off, and what is too far."""
    if one.read is None:
        return [f"--  {one.question} | {one.refused}"]
    found = []
    for mark, pair in (("", one.read), ("formulas ", one.formulas)):
        if pair is not None and (pair.faults or not mark):
            shown = " ".join(f"{name} {value:+.1%}" for name, value in pair.apart.items())
            head = (
                f"{mark or ('BAD ' if pair.faults else 'ok  ')}{one.question if not mark else pair.command} | {shown}"
            )
            found += [f"    {head}" if mark else head, *(f"      {fault}" for fault in pair.faults)]
    return found


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
            print("\n".join(lines_of(one)), flush=True)
    print(table(made))
    if options.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{table(made)}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
