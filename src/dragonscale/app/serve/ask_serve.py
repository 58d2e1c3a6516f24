"""`dscale serve` asked: the question read and answered; and what can be made of the answer: the next command, a plan
file that `dscale simulate` takes as it is, ledgers, timelines."""

import shlex

from dragonscale.app.given import check_named, unnamed
from dragonscale.app.questions.flag import written
from dragonscale.app.questions.serve import ServeQuestion
from dragonscale.app.record import Face, Record, bind
from dragonscale.app.serve.answer import answer
from dragonscale.app.serve.config import deployment_of, iterations
from dragonscale.app.serve.serve_charts import draw
from dragonscale.app.serve.serve_question import ServeAsked, read_question
from dragonscale.app.serve.serve_records import ConfigReport, ServeReport
from dragonscale.app.serve.serve_sheet import serve_sheet
from dragonscale.listener import Listener
from dragonscale.plan.ledger import Ledger
from dragonscale.plan.timeline import TimelinePass, save_timeline, timeline
from dragonscale.serving import plan_file
from dragonscale.serving.ledger import iteration_ledger
from dragonscale.serving.plan import parse_serving_plan
from dragonscale.serving.targets import LATENCIES
from dragonscale.sheets.sheet import NextStep, Sheet


def ask(question: ServeQuestion, listener: Listener, brief: bool = False) -> ServeReport:
    """Read a question, tell how it was read, and answer it; briefly, without what is solved or searched beside the
    answer."""
    asked = read_question(question)
    for text in asked.notes:
        listener.note(text)
    return answer(asked, listener.step, brief).came_from(asked, listener.notes)


def next_command(asked: ServeAsked, report: ServeReport) -> str:
    """The recommended replicas under their traffic: what `dscale simulate` says of percentiles and queues."""
    question = asked.question
    if not report.configs or not report.configs[0].meets_slo or unnamed(question.model, question.on, question.draft):
        return ""
    saved, work = recommended(asked, report), report.workload
    seqs = -(-saved.batch // saved.plan.data)
    words = ["dscale simulate", written(asked.question.model), "--on", saved.slice, "--plan", str(saved.plan)]
    words += ["--replicas", str(saved.replicas)] if saved.replicas > 1 else []
    if saved.prefill.slice:
        words += ["--prefill-on", saved.prefill.slice, "--prefill-plan", saved.prefill.plan]
        words += ["--prefill-replicas", str(saved.prefill.replicas)] if saved.prefill.replicas > 1 else []
    words += ["--rate", saved.traffic.rate] if saved.traffic.rate else ["--clients", str(saved.batch * saved.replicas)]
    words += ["--prompt", str(work.prompt), "--output", str(work.output), "--max-seqs", str(seqs)]
    for name in LATENCIES:
        words += [f"--{name}", value] if (value := getattr(saved.targets, name)) else []
    if shared := round(work.prompt * work.cached):  # one prefix that all prompts begin with, as serve counts it
        words += ["--prefixes", f"1x{shared}"]
    words += [] if asked.is_auto else ["--engine", saved.engine]
    if saved.speculation.drafts:
        words += ["--drafts", str(saved.speculation.drafts), "--accept", saved.speculation.acceptance]
        words += ["--draft", saved.speculation.draft] if saved.speculation.draft else []
    return " ".join([*words, *_as_asked(asked)])


def _as_asked(asked: ServeAsked) -> list[str]:
    """The flags that both commands have, and that the plan does not say, as they were given."""
    words: list[str] = []
    question = asked.question
    for name in ("token_budget", "memory_fraction", "price", "family", "force", "set", "assume"):
        value, flag = getattr(question, name), "--as" if name == "family" else f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value:
            several = value if isinstance(value, list | tuple) else (value,)
            words += [word for one in several for word in (flag, shlex.quote(str(one)))]
    return words


def iteration_ledgers(report: ServeReport) -> dict[str, Ledger]:
    """The ledgers of a prefill and of a decode step of the first configuration of a report, which keeps them beside its
    fields."""
    kept, best = vars(report), report.first()
    if "ledgers" not in kept:
        kept["ledgers"] = {}
        for name in ("prefill", "decode"):
            deployment = deployment_of(report.asked, best, name)
            step = iterations(report.asked, best.batch, deployment)[name]
            kept["ledgers"][name] = iteration_ledger(deployment, step)
    return kept["ledgers"]


def save_iterations(report: ServeReport, path: str) -> str:
    """Write a prefill and a decode step of the first configuration as a timeline for ui.perfetto.dev."""
    best, ledgers = report.first(), iteration_ledgers(report)
    passes = [TimelinePass(name, tuple(ledger.lines)) for name, ledger in ledgers.items()]
    save_timeline(timeline(passes, f"{report.model} on {best.copy_slice}: {best.plan}, batch {best.batch}"), path)
    return "; open it at https://ui.perfetto.dev"


def recommended(asked: ServeAsked, report: ServeReport) -> plan_file.SavedPlan:
    """What a report recommends, with everything it was worked out for."""
    best = report.configs[0]
    pool = best.prefill
    question, limits, rate = asked.question, asked.limits, asked.question.rate.strip()
    if pool is not None:  # which are sized for a rate, and their TTFT is that of random arrivals
        rate = rate or f"{best.requests_per_s:.4g}/s"
    ramp = "" if rate else f"{best.latency_s:.4g}s"
    prefill = plan_file.SavedPrefill()
    if pool is not None:
        prefill = plan_file.SavedPrefill(asked.written_slice(pool.slice), pool.plan, pool.replicas)
    return plan_file.SavedPlan(
        parse_serving_plan(best.plan),
        written(question.model),
        asked.written_slice(best.copy_slice),
        best.engine,
        best.batch,
        replicas=best.decodes if pool is not None else best.copies if best.replicas is None else best.replicas,
        traffic=plan_file.SavedTraffic(asked.ask.prompt, asked.ask.output, asked.ask.cached, rate, ramp=ramp),
        targets=plan_file.SavedTargets(**{name: getattr(question, name).strip() for name in LATENCIES}),
        launch=plan_file.SavedLaunch(limits.max_seqs, limits.token_budget, limits.memory_fraction),
        speculation=_drafts(asked, best),
        prefill=prefill,
    )


def _drafts(asked: ServeAsked, best: ConfigReport) -> plan_file.SavedDrafts:
    if asked.draft is None or not best.drafts:
        return plan_file.SavedDrafts()
    chances = asked.draft.acceptance
    text = ",".join(f"{one:g}" for one in (chances if isinstance(chances, tuple) else (chances,)))
    return plan_file.SavedDrafts(best.drafts, text, written(asked.question.draft))


def _save(report: ServeReport, path: str) -> str:
    """Write what a report recommends as TOML, for `--plan`, `dscale simulate` and `dscale verify`."""
    report.first()
    question = report.asked.question
    check_named(question.model, question.on, question.draft)
    plan_file.save_serving_plan(recommended(report.asked, report), path)
    return f"; `dscale simulate {path}` runs it under its traffic"


def _sheet(report: ServeReport, detail: bool) -> Sheet:
    sheet, command = serve_sheet(report, detail), report.asked and next_command(report.asked, report)
    if not command:
        return sheet
    return Sheet((*sheet.blocks, NextStep(command, "Next, under traffic:")))


def _ledger(report: ServeReport) -> Ledger:
    return iteration_ledgers(report)["decode"]


def _verify(report: ServeReport) -> Record:
    from dragonscale.app.verify.ask_verify import verified
    from dragonscale.app.verify.verify_question import serving_question

    report.first()
    return verified(serving_question(report.asked, report))


bind(ServeReport, Face(_sheet, draw, _save, timeline=save_iterations, verify=_verify, ledger=_ledger))
