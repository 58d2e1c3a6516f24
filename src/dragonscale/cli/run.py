"""`dscale run train PLAN`: the plan as a real program, on the devices there are."""

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from typing import Annotated, Any

from cyclopts import App, Parameter

from dragonscale.cli.flags import Json
from dragonscale.cli.progress import Bar
from dragonscale.cli.show import emit_json, note, say
from dragonscale.errors import InputError

NEEDED = ("jax", "optax", "orbax.checkpoint")


def build() -> App:
    """The run command and what it runs."""
    app = App(name="run", help="Run a plan in JAX on the devices there are.")
    app.command(run_train, name="train")
    return app


def run_train(
    plan: Annotated[str, Parameter(help="A plan file (plan.toml, see --save of train), or fsdp=8,remat=block.")],
    /,
    *,
    model: Annotated[str, Parameter(help="A preset, a config.json, or a TOML file.")] = "",
    on: Annotated[str, Parameter(name="--on", help="The slice whose planned step time to show beside.")] = "",
    data: Annotated[
        str, Parameter(help="Token files (.bin of uint16 or uint32, .npy), several with commas; * works.")
    ] = "",
    steps: Annotated[int | None, Parameter(help="How many steps, from the very first.")] = None,
    batch: Annotated[int | None, Parameter(help="Sequences of a step, over all devices.")] = None,
    seq: Annotated[int | None, Parameter(help="Tokens of a sequence.")] = None,
    learning_rate: Annotated[float | None, Parameter(help="At its peak.")] = None,
    warmup: Annotated[int | None, Parameter(help="Steps until the learning rate is at its peak.")] = None,
    seed: Annotated[int | None, Parameter(help="Of the weights and the order of the data.")] = None,
    weights: Annotated[
        str, Parameter(help="A folder of Hugging Face .safetensors files to begin from; random weights without one.")
    ] = "",
    checkpoints: Annotated[str, Parameter(help="The folder of checkpoints; a run goes on from the newest.")] = "",
    every: Annotated[int | None, Parameter(help="Steps between checkpoints; 0: only at the end.")] = None,
    keep: Annotated[int | None, Parameter(help="How many checkpoints stay.")] = None,
    metrics: Annotated[
        str, Parameter(help="A file for a line of JSON a step (metrics.jsonl beside checkpoints).")
    ] = "",
    dtype: Annotated[str, Parameter(help="What matrices are multiplied in: bf16 or fp32.")] = "",
    capacity: Annotated[
        float | None, Parameter(help="Room of each expert on each chip over its even share; 0 drops no token.")
    ] = None,
    cpu: Annotated[int, Parameter(help="Run on so many virtual devices of this machine's CPU.")] = 0,
    log: Annotated[int, Parameter(help="Steps between lines on stderr; 0: none.")] = 10,
    json: Json = False,
) -> int:
    """Train: real steps of the plan, beside what it promised."""
    _check_extra()
    from dragonscale.runtime.train.settings import read_order

    given = {
        "data": [one for one in data.split(",") if one], "steps": steps, "batch": batch, "seq": seq, "seed": seed, "capacity": capacity,
        "learning_rate": learning_rate, "warmup": warmup, "checkpoints": checkpoints, "every": every, "keep": keep,
        "metrics": metrics, "dtype": dtype, "weights": weights,
    }  # fmt: skip
    order = read_order(plan, model, on, {name: value for name, value in given.items() if value not in (None, "", [])})
    first = _prepare(cpu)
    from dragonscale.runtime.train.loop import train

    with Bar("steps") as bar:

        def watch(line: dict[str, Any]) -> None:
            bar.step(line["step"], order.run.steps)
            if first and log and (line["step"] % log == 0 or line["step"] == order.run.steps):
                note(_line(line))

        with _own_stdout():
            result = train(order, watch)
    if not first:
        return 0
    if json:
        emit_json(result)
    else:
        from dragonscale.cli.run_text import text_of

        say(text_of(result))
    return 0


def _check_extra() -> None:
    """JAX and what trains with it are an extra; without it, say so before anything is read."""
    for name in NEEDED:
        try:
            found = importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            found = False
        if not found:
            raise InputError(f"To run a plan {name} must be installed: pip install 'dragonscale[jax]'.")


def _prepare(cpu: int) -> bool:
    """JAX with its devices and, where a scheduler says so, the other processes; whether this process is the one to talk."""
    import os

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # the runtime's own remarks on start-up
    import jax

    from dragonscale.runtime.train.hosts import found_host, join

    if cpu:
        if not 1 <= cpu <= 4096:
            raise InputError(f"--cpu is {cpu}; write a number of virtual devices from 1 to 4096.")
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", cpu)
    host = found_host(os.environ)
    join(host)
    return host is None or host.index == 0


@contextlib.contextmanager
def _own_stdout() -> Iterator[None]:
    """What libraries print while processes meet goes to stderr: stdout is for the answer."""
    import os

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
