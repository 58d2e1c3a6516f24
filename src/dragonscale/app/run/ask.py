"""The answer to `dscale run train`: the plan as a real program, on the devices there are."""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dragonscale.app.asked_chips import asked_chips
from dragonscale.app.given import check_named
from dragonscale.app.questions.flag import written
from dragonscale.app.questions.run import RunTrainQuestion
from dragonscale.app.run.profiled import profile_folder, read_profile
from dragonscale.app.run.records import TrainRun
from dragonscale.errors import InputError
from dragonscale.listener import Listener
from dragonscale.models.assumed import with_assumed

NEEDED = ("jax", "optax")
KEEPS = "orbax.checkpoint"
SETTINGS = (
    "steps",
    "batch",
    "seq",
    "seed",
    "capacity",
    "learning_rate",
    "warmup",
    "checkpoints",
    "every",
    "keep",
    "metrics",
    "dtype",
    "weights",
)


def ask_train(question: RunTrainQuestion, listener: Listener) -> TrainRun | None:
    """Train, and tell each few steps how it goes; None in a process of the run that is not the one to talk."""
    _check_extra(NEEDED)
    from dragonscale.runtime.train.settings import read_order

    given = {name: getattr(question, name) for name in SETTINGS}
    given["data"] = [one for one in question.data.split(",") if one]
    changes = {name: value for name, value in given.items() if value not in (None, "", [])}
    check_named(question.model, question.on)
    model = written(with_assumed(question.model, question.assume, question.family))
    order = read_order(written(question.plan), model, written(question.on), changes)
    if question.kernels and not order.slice:
        raise InputError(
            "--kernels is of the chips that the planned step is of; name them with --on, such as --on h200:8."
        )
    if order.slice:
        order = replace(order, slice=asked_chips(order.slice, "", question.kernels))
    if order.run.checkpoints:
        _check_extra((KEEPS,))
    folder = profile_folder(question, order)
    first = _prepare(question.cpu)
    from dragonscale.runtime.train.loop import train
    from dragonscale.runtime.train.planned import lacks_rate
    from dragonscale.runtime.train.profiling import StepProfiler

    if first and (lacking := lacks_rate(order)):
        listener.note(lacking)
    profiler = StepProfiler(folder, question.profile) if question.profile else None

    def watch(line: dict[str, Any]) -> None:
        listener.step(line["step"], order.run.steps)
        often = question.log and line["step"] % question.log == 0
        if first and (often or (question.log and line["step"] == order.run.steps)):
            listener.log(_line(line))

    with _own_stdout():
        result = train(order, watch, profiler)
    if not first:
        return None
    read = read_profile(order, result, profiler, listener) if profiler is not None else None
    return TrainRun.of(result, read).came_from(replace(question, on=order.slice), listener.notes)


def _check_extra(needed: tuple[str, ...]) -> None:
    """JAX and what trains with it are an extra; without it, say so before anything is read."""
    for name in needed:
        try:
            found = importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            found = False
        if not found:
            raise InputError(f"To run a plan {name} must be installed: pip install 'dragonscale[jax]'.")


def _prepare(cpu: int) -> bool:
    """JAX with its devices and, where a scheduler says so, the other processes; whether this process is the one to
    talk."""
    if cpu and not 1 <= cpu <= 4096:
        raise InputError(f"--cpu is {cpu}; write a number of virtual devices from 1 to 4096.")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # the runtime's own remarks on start-up
    # Of a GPU's memory JAX takes three quarters unless it is told; plans fill up to 92%.
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.95")
    import jax

    from dragonscale.runtime.train.hosts import found_host, join

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
    own = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(own, 1)
        os.close(own)


def _line(line: dict[str, Any]) -> str:
    mfu = "" if line["mfu"] is None else f"  MFU {line['mfu']:.1%}"
    planned = "" if line["planned_step_s"] is None else f"  (planned {1e3 * line['planned_step_s']:.3g} ms)"
    return f"step {line['step']:>6,}  loss {line['loss']:.4f}  {1e3 * line['step_s']:.1f} ms{planned}{mfu}"
