"""The log of a run of reinforcement learning against its plan: the step and its phases, measured beside expected."""

from typing import Any

from dragonscale.commands.questions.rl import RlQuestion
from dragonscale.commands.questions.validate import RlScoreQuestion
from dragonscale.commands.rl.ask_rl import ask
from dragonscale.commands.validate.validate_records import RunScore, measure
from dragonscale.errors import Infeasible
from dragonscale.evidence.logs.rl_log import read_rl_log
from dragonscale.evidence.logs.text import LogText
from dragonscale.listener import Listener


def ask_logged(question: RlScoreQuestion, listener: Listener) -> RunScore:
    """Score a log: the config or command that ran is judged with the lengths that answers had."""
    log = read_rl_log(LogText.at(question.file))
    # the lengths that answers had, where the log says them
    lengths: dict[str, Any] = {"mean_output": f"{log.length:.0f}"} if log.length >= 1 else {}
    report = ask(RlQuestion(model=question.model, on=question.on, plan=question.plan, **lengths), listener)
    best = report.best
    if best is None:
        raise Infeasible(f"{report.headline()} by the planner's count, and the run did.")
    band = (best.step_low_s, best.step_high_s)
    rows = []
    if "step" in log.seconds:
        rows = [measure("step", "s", log.seconds["step"], best.step_s, band)]
    for name, seconds in log.seconds.items():
        # a log may time several phases as one
        expected = sum(best.phase(part) for part in name.split("+"))
        if name != "step" and expected:
            rows.append(measure(name, "s", seconds, expected))
    inside = rows[0].inside
    text = "The log has no time of a whole step."
    if inside is not None:
        text = f"The step is {'in' if inside else 'outside'} the band of published ones."
    work = f"{report.prompts:,} prompts x {report.samples:,} answers of {report.mean_output:,.0f} tokens on average"
    return RunScore(
        kind="rl",
        software=log.software,
        model=report.model,
        slice=report.slice,
        plan=f"{best.mode}: {best.train}; {best.rollout}",
        judged_by=best.stack,
        workload=work,
        measures=rows,
        inside=inside,
        text=text,
        counted=log.steps,
        skipped=1,
    ).came_from(question, listener.notes)
