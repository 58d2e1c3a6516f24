"""A way to run a step in the words of a framework: the best one written down, a config or command read and judged."""

import shlex
from dataclasses import replace
from pathlib import Path

from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.rl import RlQuestion
from dragonscale.errors import InputError, shorten
from dragonscale.exports.imported import Given
from dragonscale.exports.rl.rl_commands import read_rl, target_of, write_rl
from dragonscale.exports.rl.rl_file import RlFile
from dragonscale.files import write_file
from dragonscale.listener import Listener
from dragonscale.physics.units import render
from dragonscale.simulation.rl.frameworks import framework
from dragonscale.simulation.rl.step import RlPlan, RlStep
from dragonscale.simulation.rl.work import RlWork, answers_jobs, handed, packed_job

SAID = ("model", "algorithm", "prompts", "samples", "prompt", "output", "updates", "reference", "mode")
"""What a config says of a question; a flag that is given comes before it."""


def with_config(question: RlQuestion, listener: Listener) -> tuple[RlQuestion, RlFile | None]:
    """A question whose `--plan` is a framework's config, as flags would ask it; and what was read."""
    text = written(question.plan).strip()
    if not text:
        return question, None
    if len(text.split()) == 1 and not Path(text).exists():
        raise InputError(f"There is no file {shorten(text)}; --plan is a framework's command, script or config.")
    found = read_rl(text, Given(written(question.model), written(question.on)))
    file, usual = found.file, RlQuestion()
    listener.note(f"Read as a run of {found.target.title} {found.target.table().version}.")
    for note in found.notes:
        listener.note(note)
    if found.unknown:
        listener.note(f"Unknown to {found.target.title}: {', '.join(found.unknown)}.")
    asked = {name: getattr(file, name) for name in SAID}
    asked |= {"prompt": str(file.prompt), "output": str(file.output), "stack": file.stack, "on": file.slice}
    asked |= {"rollout_dtype": file.rollout.weights, "staleness": file.ahead, "mean_output": f"{file.mean_output:.0f}"}
    asked |= {} if file.spread is None else {"spread": file.spread}
    given = {name for name in asked if name not in ("on", "model") and getattr(question, name) != getattr(usual, name)}
    given |= {"mean_output", "spread"} if question.lengths.strip() else set()
    return replace(question, **{name: value for name, value in asked.items() if name not in given}), file


def plan_of(file: RlFile, work: RlWork) -> RlPlan:
    """The plan that a config says."""
    row = framework(file.stack)
    trained, pool = file.pools
    work, fullest = handed(work, row, file.trainer), None
    if file.by_answers and not work.padded:
        job, fullest = answers_jobs(work, trained, file.trainer, file.train)
    else:
        job = packed_job(work, trained, file.trainer, file.train.replicas * file.train.microbatch)
    ahead = file.ahead if file.mode == "async" else 0.0
    return RlPlan(file.mode, row, job, file.train, file.rollout, pool, ahead, fullest)


def exported(question: RlQuestion, step: RlStep, model: str, on: str) -> dict[str, str]:
    """The best way as the command of a framework, written to a folder where one is named."""
    work, plan = step.work, step.plan
    file = RlFile(
        question.to.strip().lower() or plan.framework.name,
        model,
        on,
        work.algorithm,
        work.prompts,
        work.samples,
        work.prompt,
        work.lengths.cap,
        float(work.lengths.mean),
        spread=None if work.lengths.measured else work.lengths.spread,
        updates=work.updates,
        reference=work.reference,
        mode=plan.mode,
        ahead=plan.ahead,
        trainer=plan.job.stack.name,
        train_chips=plan.job.slice.chips,
        rollout_chips=plan.pool.chips,
        train=plan.train,
        rollout=plan.rollout,
        share=plan.framework.share(plan.mode),
    )
    expected = f"{render(step.seconds, 's')} a step, {step.rate:,.0f} tokens/s/chip"
    made = write_rl(file, (expected,), f"dscale rl {shlex.quote(model)} --on {on} --to {file.stack}")
    folder = Path(question.out.strip())
    if question.out.strip():
        if folder.exists() and not folder.is_dir():
            raise InputError(f"--out is {shorten(str(folder))}, which is a file; give a folder.")
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in made.items():
            write_file(folder / name, text, "The export")
            (folder / name).chmod(0o755)
    return made


def checked_target(question: RlQuestion) -> str:
    """The framework that is written for; empty where none is."""
    name = question.to.strip().lower()
    if name:
        target_of(name)
    return name
