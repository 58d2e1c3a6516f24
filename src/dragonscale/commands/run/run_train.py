"""`dscale run train`: the plan as a real program on the devices there are, what it reached beside what was planned, and
what the difference means.

Steps that were recorded are read as `dscale profile` reads them, with the run's own plan beside them where the devices
are chips that we know: on the slice that was named, or on as many such chips as ran. On a CPU the planned seconds would
be of another machine, and are left out.
"""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from dragonscale.blocks.sheet import Column, Prose, Sheet, Title, amount, table
from dragonscale.commands.asked_chips import asked_chips
from dragonscale.commands.given import check_named
from dragonscale.commands.profile.ask_profile import ask
from dragonscale.commands.profile.profile_records import ProfileReport
from dragonscale.commands.questions.flag import values_of, written
from dragonscale.commands.questions.run import RunTrainQuestion
from dragonscale.commands.questions.verify import ProfileQuestion
from dragonscale.commands.record import Face, Record, bind
from dragonscale.errors import InputError
from dragonscale.installing import install_hint
from dragonscale.listener import Listener
from dragonscale.models.assumed import with_assumed
from dragonscale.physics.units import render
from dragonscale.runtime.train.planned import TrainResult, chip_of, lacks_rate
from dragonscale.runtime.train.settings import Order, read_order


class TrainRun(TrainResult, Record):
    """What came of a run, as the loop tells it."""

    profile: ProfileReport | None = None
    """Where the time of the recorded steps went, with `--profile-steps`."""

    def headline(self) -> str:
        step = ""
        if self.step_s is not None:
            step = f", {render(self.step_s, 's')} a step"
        return f"{self.model}: steps {self.first_step:,} to {self.last_step:,}{step}"

    def save_page(self, path: str) -> str | None:
        return self._recorded().save_page(path)

    def save_timeline(self, path: str) -> str | None:
        return self._recorded().save_timeline(path)

    def _recorded(self) -> ProfileReport:
        if self.profile is None:
            raise InputError("A run has a page and a timeline where it records steps; give --profile-steps 3.")
        return self.profile


MOST = 1000


def profile_folder(question: RunTrainQuestion, order: Order) -> str:
    """Where the profile goes: as told, beside the checkpoints, or here; empty where none is asked for."""
    if question.profile_steps is None:
        if question.profile_to:
            raise InputError(
                "--profile-to says where a profile goes; say how many steps to record too, such as --profile-steps 3."
            )
        return ""
    if not 1 <= question.profile_steps <= MOST:
        raise InputError(f"--profile-steps is {question.profile_steps}; record 1 to {MOST} steps.")
    return question.profile_to or str(Path(order.run.checkpoints or ".") / "profile")


def read_profile(order: Order, result: TrainResult, profiler: Any, listener: Listener) -> ProfileReport | None:
    """What the recorded steps say; None where the run ended before there were any."""
    if profiler.recorded is None:
        listener.note("The run ended before a step was recorded.")
        return None
    first, last = profiler.recorded
    listener.note(
        f"Steps {first} to {last} are recorded in {profiler.folder}: `dscale profile {profiler.folder}` reads "
        "them again."
    )
    # a device that is no known chip has no plan to lay beside
    chip = chip_of(result.device_kind)
    if chip is None:
        return ask(ProfileQuestion(profiler.folder), listener)
    here, run = order.slice or f"{chip.name}:{result.devices}", order.run
    job: dict[str, Any] = {"model": order.model, "on": here, "plan": str(order.plan), "program": "train"}
    job |= {"batch": f"{run.batch}seq", "seq": str(run.seq), "stack": "dragonscale"}
    return ask(ProfileQuestion(profiler.folder, **job), listener)


NEEDED = ("jax", "optax")
KEEPS = "orbax.checkpoint"
EXTRA = "run a plan", "jax"
TUNED = ("method", "lora_rank", "lora_targets", "frozen")
NO_SETTINGS = (
    "plan",
    "model",
    "on",
    "profile",
    "cpu",
    "assume",
    "family",
    "log",
    "profile_steps",
    "profile_to",
    *TUNED,
)
# Flags that are not settings of the run itself, and settings with a flag of another name.
SETTINGS = {"load_weights": "weights", "warmup_steps": "warmup"}


def ask_train(question: RunTrainQuestion, listener: Listener) -> TrainRun | None:
    """Train, and tell each few steps how it goes; None in a process of the run that is not the one to talk."""
    check_installed(NEEDED, *EXTRA)
    settings = {
        SETTINGS.get(name, name): value for name, value in values_of(question).items() if name not in NO_SETTINGS
    }
    settings |= {name: [path for path in settings[name].split(",") if path] for name in ("data", "eval_data")}
    changes = {name: value for name, value in settings.items() if value not in (None, "", []) and value is not False}
    check_named(question.model, question.on)
    model = written(with_assumed(question.model, question.assume, question.family))
    tuned = {name: getattr(question, name) for name in TUNED}
    # every setting that is left stands in the plan file or has its default
    order = read_order(written(question.plan), model, written(question.on), changes, tuned)
    if question.profile and not order.slice:
        raise InputError(
            "--profile is of the chips that the planned step is of; name them with --on, such as --on h200:8."
        )
    if order.slice:
        order = replace(order, slice=asked_chips(order.slice, "", question.profile))
    if order.run.checkpoints:
        check_installed((KEEPS,), *EXTRA)
    folder = profile_folder(question, order)
    first = prepare_jax(question.cpu)
    from dragonscale.runtime.train.loop import train
    from dragonscale.runtime.train.profiling import StepProfiler

    # several processes would say it once each
    if first and (lacking := lacks_rate(order)):
        listener.note(lacking)
    profiler = None
    if question.profile_steps:
        profiler = StepProfiler(folder, question.profile_steps)

    def watch(line: dict[str, Any]) -> None:
        listener.step(line["step"], order.run.steps)
        often = question.log and (line["step"] % question.log == 0 or "spike" in line or "eval_loss" in line)
        if first and (often or (question.log and line["step"] == order.run.steps)):
            listener.log(_line(line))

    # libraries print while processes meet
    with _own_stdout():
        result = train(order, watch, profiler)
    if not first:
        return None
    read = None
    if profiler is not None:
        read = read_profile(order, result, profiler, listener)
    whole = TrainRun(**msgspec.structs.asdict(result), profile=read)
    return whole.came_from(replace(question, on=order.slice), listener.notes)


def check_installed(needed: tuple[str, ...], purpose: str, extra: str) -> None:
    """JAX and what trains or serves with it are extras; without one, say so before anything is read."""
    for name in needed:
        try:
            there = importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            there = False
        if not there:
            raise InputError(f"To {purpose} {name} must be installed: {install_hint(extra)}")


def prepare_jax(cpu: int) -> bool:
    """JAX with its devices and, where a scheduler says so, the other processes; whether this process is the one to
    talk."""
    if cpu and not 1 <= cpu <= 4096:
        raise InputError(f"--cpu is {cpu}; write a number of virtual devices from 1 to 4096.")
    # Of a GPU's memory JAX takes three quarters unless it is told; plans fill up to 92%.
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.95")
    import jax

    from dragonscale.runtime.train.hosts import found_host, join
    from dragonscale.runtime.xla import keep_compiled

    keep_compiled()
    if cpu:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", cpu)
    host = found_host(os.environ)
    join(host)
    return host is None or host.index == 0


@contextlib.contextmanager
def _own_stdout() -> Iterator[None]:
    """What libraries print while processes meet goes to stderr: stdout is for the answer."""
    from dragonscale.runtime.train.hosts import found_host

    if found_host(os.environ) is None:
        yield
        return
    sys.stdout.flush()
    # file descriptor 1 is what libraries in C write to as well
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def _line(line: dict[str, Any]) -> str:
    mfu = ""
    if line["mfu"] is not None:
        mfu = f"  MFU {line['mfu']:.1%}"
    planned = ""
    if line["planned_step_s"] is not None:
        planned = f"  (planned {1e3 * line['planned_step_s']:.3g} ms)"
    held_out = ""
    if "eval_loss" in line:
        held_out = f"  held out {line['eval_loss']:.4f}"
    loss = f"loss {line['loss']:.4f}{'  (a spike)' if 'spike' in line else ''}{held_out}"
    return f"step {line['step']:>6,}  {loss}  {1e3 * line['step_s']:.1f} ms{planned}{mfu}"


def run_blocks(result: TrainRun, detail: bool) -> Sheet:
    """The run and the plan side by side, and where the time of recorded steps went."""
    planned = result.planned
    state = None
    if planned:
        state = amount(planned.state_bytes, "bytes")
    peak = None
    if planned:
        peak = amount(planned.hbm_bytes, "bytes")
    rows = [
        ("steps", f"{result.first_step:,} to {result.last_step:,} of {result.steps:,}", None),
        ("loss", None if result.loss is None else f"{result.loss:.4f}", None),
        *([("held-out loss", f"{result.eval_loss:.4f}", None)] if result.eval_loss is not None else []),
        ("step", amount(result.step_s, "s"), amount(planned.step_s, "s") if planned else None),
        ("tokens/s", None if result.tokens_per_s is None else f"{result.tokens_per_s:,.0f}", None),
        ("MFU", _share(result.mfu), _share(planned.mfu) if planned else None),
        ("state on a device", amount(result.state_bytes_per_device, "bytes"), state),
        ("peak on a device", amount(result.peak_bytes_per_device, "bytes"), peak),
    ]
    head = f"{result.model}: {result.parameters:,} parameters"
    aside = f"plan {result.plan}, on {result.devices} x {result.device_kind}"
    where = f"planned on {planned.slice}" if planned else "planned"
    columns = ["", Column("run", right=True), Column(where, right=True)]
    recorded = ()
    if result.profile is not None:
        recorded = result.profile.sheet(detail).blocks
    return Sheet((Title(head, aside), Prose("\n".join(_remarks(result))), table(columns, rows), *recorded))


def _share(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{100 * value:.3g}%"


def _remarks(result: TrainRun) -> list[str]:
    remarks: list[str] = []
    planned = result.planned
    if planned is not None:
        remarks += [
            f"The planner would not take this plan on {planned.slice}: {problem}." for problem in planned.problems
        ]
        remarks += planned.remarks
    if planned is None:
        named = getattr(result.asked, "on", "")  # then a note says why nothing is planned
        if not named:
            remarks += ["Name a slice (--on h100:8) to see the planned step beside the run."]
    elif result.mfu is None:
        kind = result.device_kind
        remarks.append(f"These devices ({kind}) are not the chips of the plan: the step times cannot be compared.")
    elif result.step_s is not None:
        remarks.append(f"A step took {result.step_s / planned.step_s:.2f} times what was planned.")
    if result.capacity:
        remarks.append(
            f"Each expert had room for {result.capacity:g} of its even share of tokens; the tokens beyond it were "
            "dropped (--capacity)."
        )
    if result.stopped != "finished":
        remarks.append(f"Stopped by {result.stopped} after step {result.last_step}; run it again to go on.")
    return remarks


bind(TrainRun, Face(run_blocks))
