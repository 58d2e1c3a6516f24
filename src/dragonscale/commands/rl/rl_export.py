"""A config or command of a framework as a question, and the best way as a config of a framework."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from dragonscale.commands.questions.flag import written
from dragonscale.commands.questions.rl import RlQuestion
from dragonscale.errors import InputError, shorten
from dragonscale.exports.imported import Given
from dragonscale.exports.rl.planned import file_of
from dragonscale.exports.rl.rl_commands import read_rl, target_of, write_rl
from dragonscale.exports.rl.rl_file import RlFile
from dragonscale.files import write_file
from dragonscale.listener import Listener
from dragonscale.physics.units import render
from dragonscale.simulation.rl.step import RlStep


def with_config(question: RlQuestion, listener: Listener) -> tuple[RlQuestion, RlFile | None]:
    """A question whose `--plan` is a framework's config, as flags would ask it; and the config's run."""
    text = written(question.plan).strip()
    if not text:
        return question, None
    if len(text.split()) == 1 and not Path(text).exists():
        raise InputError(f"There is no file {shorten(text)}; --plan is a framework's command, script or config.")
    config = read_rl(text, Given(written(question.model), written(question.on)))
    listener.note(f"Read as a run of {config.target.title} {config.target.table().version}.")
    for note in config.notes:
        listener.note(note)
    if config.unknown:
        listener.note(f"Unknown to {config.target.title}: {', '.join(config.unknown)}.")
    file = config.file
    flags: dict[str, Any] = {
        "model": file.model,
        "on": file.slice,
        "stack": file.stack,
        "algorithm": file.algorithm,
        "prompts": file.prompts,
        "samples": file.samples,
        "prompt": str(file.prompt),
        "output": str(file.output),
        "mean_output": f"{file.mean_output:.0f}",
        "updates": file.updates,
        "reference": file.reference,
        "mode": file.mode,
        "staleness": file.ahead,
        "rollout_dtype": file.rollout.weights,
    }
    if file.spread is not None:
        flags["spread"] = file.spread
    if question.lengths.strip():  # measured lengths, in place of the config's
        flags.pop("mean_output")
        flags.pop("spread", None)
    default = RlQuestion()
    for name in [*flags]:
        # a flag that is given comes before the config; model and slice have been put into it
        if name not in ("on", "model") and getattr(question, name) != getattr(default, name):
            flags.pop(name)
    return replace(question, **flags), file


def exported(question: RlQuestion, step: RlStep, model: str, on: str) -> dict[str, str]:
    """The best way as the command of a framework by its file's name, written to a folder where one is named."""
    file = file_of(step, checked_target(question), model, on)
    expected = f"{render(step.seconds, 's')} a step, {step.rate:,.0f} tokens/s/chip"
    files = write_rl(file, (expected,), f"dscale rl {shlex.quote(model)} --on {on} --to {file.stack}")
    if question.out.strip():
        folder = Path(question.out.strip())
        if folder.exists() and not folder.is_dir():
            raise InputError(f"--out is {shorten(str(folder))}, which is a file; give a folder.")
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_file(folder / name, text, "The export")
            (folder / name).chmod(0o755)
    return files


def checked_target(question: RlQuestion) -> str:
    """The framework of --to; empty where none is named."""
    name = question.to.strip().lower()
    if name:
        target_of(name)
    return name
