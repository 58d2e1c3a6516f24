"""The ladder of launches in an answer: what each addition to the plain launch brings, and the first addition with which
missed targets are met.

A rung is answered as the question with its flags would be, so that its numbers are those that these flags give.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dragonscale.commands.serve.serve_question import ServeAsked
from dragonscale.commands.serve.serve_records import ServeReport, config_text
from dragonscale.commands.serve.variant_records import RungRow
from dragonscale.serving.advice.ladder import Rung, ladder, on_rung
from dragonscale.serving.space.frontier import Config

# Answers a job on a rung.
Answerer = Callable[[ServeAsked, Rung], ServeReport]

# Gain of tokens from which an addition is worth it: steps are expected wrong by as much.
WORTH = 0.05


def climb(job: ServeAsked, best: Config, answered: Answerer) -> ServeReport | None:
    """The answer on the first rung with which the targets are met that the plain launch misses, of those that leave
    the model's answers as they are; None where there is none."""
    if not job.goals or job.compares_chips:
        return None
    for rung in _open_rungs(job, best):
        if not rung.lossless:
            continue
        report = answered(_asked_on(job, rung), rung)
        if report.best is not None:
            return report
    return None


def rung_rows(job: ServeAsked, report: ServeReport, answered: Answerer) -> list[RungRow]:
    """What each addition to the launch of a report would bring."""
    first = report.configs[0]
    if job.compares_chips or not first.meets_slo:
        return []
    rows: list[RungRow] = []
    for rung in _open_rungs(job, first.config):
        other = answered(_asked_on(job, rung), rung)
        if other.best is None:
            continue
        gain = first.paid / other.best.paid - 1
        worth_it = gain >= WORTH
        if "disaggregate" in rung.flags and other.disaggregation is not None:
            ratio = other.disaggregation.gain
            gain = None if ratio is None else ratio - 1
            worth_it = other.disaggregation.pays
        if gain is None:
            continue
        per = "tokens/s" if first.cost_usd_per_mtok is None else "tokens/$"
        brings = f"{gain:+.0%} {per}" if worth_it else f"not worth it, {1 + gain:.2f}x"
        text = f"{rung.name} {brings} ({flags_text(rung)})"
        rows.append(RungRow(rung.name, rung.flags, gain, config_text(other.best), text))
    return rows


def _open_rungs(job: ServeAsked, best: Config) -> list[Rung]:
    """The additions to the plain launch that nobody declined (`--drafts 0`)."""
    declined = "drafts" if job.question.drafts == 0 else ""
    return [rung for rung in ladder(job, best)[1:] if declined not in rung.flags]


def flags_text(rung: Rung) -> str:
    """The flags of a rung as they are typed."""
    return " ".join(f"--{name.replace('_', '-')} {value}".rstrip() for name, value in rung.flags.items())


def needed_text(rung: Rung) -> str:
    """A rung in a few words, for the verdict; empty for the plain launch."""
    return f"{rung.name} ({flags_text(rung)})" if rung.flags else ""


def _asked_on(job: ServeAsked, rung: Rung) -> ServeAsked:
    """The job of a rung, with its flags in the question, which the next command and a saved plan repeat."""
    flags: dict[str, Any] = dict(rung.flags)
    if "drafts" in flags:
        flags["drafts"] = int(flags["drafts"])
    if "disaggregate" in flags:
        flags["disaggregate"] = True
    return replace(on_rung(job, rung), question=replace(job.question, **flags))
