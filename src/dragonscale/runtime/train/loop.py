"""A run from its first step, or from where it stopped, to its last.

While the devices compute a step, the host prepares the next one's tokens. Then it looks at the loss: if it is no
number, or what was learnt is lost (`train.loss_watch`), the run ends with the last checkpoint untouched. A termination
signal is raised as a flag that goes through the step with the data, so that all hosts agree after which step they save
and leave. A plan that does not fit the devices is told in gigabytes: what it takes, what there is, what to change.
Times of steps stand beside what was planned.
"""

import hashlib
import math
import shutil
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import jax
import msgspec
import numpy
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from dragonscale.errors import Infeasible, InputError
from dragonscale.models import load_model
from dragonscale.models.program import Program
from dragonscale.models.transformer import Transformer, count_parameters
from dragonscale.runtime.checkpoint import load_weights, save_adapters, save_folder
from dragonscale.runtime.experts import expands
from dragonscale.runtime.numerics import numerics_of
from dragonscale.runtime.place import mesh_of
from dragonscale.runtime.safetensors import SafeTensors
from dragonscale.runtime.train.adam8 import block_sizes
from dragonscale.runtime.train.documents import TOKENIZER_FILES, tokenizer_folder
from dragonscale.runtime.train.feeding import Exam, feed, open_data
from dragonscale.runtime.train.gradients import DTYPES
from dragonscale.runtime.train.loss_watch import BEFORE, LossWatch
from dragonscale.runtime.train.metrics import Board, Metrics
from dragonscale.runtime.train.planned import TrainResult, chip_of, judged_here, step_flops
from dragonscale.runtime.train.profiling import WARM, StepProfiler
from dragonscale.runtime.train.settings import Order, learning_rate, settle_capacity
from dragonscale.runtime.train.step import State, Trainer, make_trainer
from dragonscale.runtime.train.tokens import TokenSource
from dragonscale.runtime.xla import asked_words, is_full, what_failed

if TYPE_CHECKING:
    from dragonscale.runtime.train.checkpoints import Checkpoints


class Clock:
    """Times of steps, and what they say."""

    def __init__(self, order: Order, model: Transformer, trainer: Trainer) -> None:
        self.order, self.model, self.trainer = order, model, trainer
        self.flops = step_flops(model, order)
        self.kind = trainer.mesh.devices.flat[0].device_kind
        chip = chip_of(self.kind)
        self.peak = None if chip is None else chip.peak("bf16")
        self.planned = judged_here(order, model, self.kind)
        self.seconds: list[float] = []

    def tick(self, seconds: float) -> dict[str, Any]:
        """One more step; its numbers for the metrics."""
        self.seconds.append(seconds)
        tokens = self.order.run.batch * self.order.run.seq
        return {
            "step_s": seconds,
            "tokens_per_s": tokens / seconds,
            "mfu": self._mfu(seconds),
            "planned_step_s": self.planned.step_s if self.planned else None,
        }

    def _mfu(self, seconds: float) -> float | None:
        return None if self.peak is None else self.flops / (seconds * self.peak * self.trainer.mesh.size)

    def result(self, first: int, done: int, stopped: str, loss: float | None, state: State) -> TrainResult:
        """Everything together."""
        later = self.seconds[1:]
        seconds = statistics.median(later) if later else None
        run, mesh = self.order.run, self.trainer.mesh
        devices = mesh.size
        return TrainResult(
            model=self.order.model,
            plan=str(self.order.plan),
            devices=devices,
            device_kind=self.kind,
            parameters=count_parameters(self.model).total,
            first_step=first,
            last_step=done,
            steps=run.steps,
            stopped=stopped,
            loss=loss,
            compile_s=self.seconds[0] if self.seconds else None,
            step_s=seconds,
            tokens_per_s=run.batch * run.seq / seconds if seconds else None,
            flops_per_s_per_device=self.flops / seconds / devices if seconds else None,
            mfu=self._mfu(seconds) if seconds else None,
            state_bytes_per_device=own_bytes_per_device(state),
            capacity=run.capacity if any("e" in one.dims for one in self.model.program().sections) else None,
            planned=self.planned,
            peak_bytes_per_device=(mesh.local_devices[0].memory_stats() or {}).get("peak_bytes_in_use"),
        )


def own_bytes_per_device(state: State) -> int:
    """Bytes of weights and optimizer state on the fullest device of this process."""
    held: Counter[Any] = Counter()
    for shard in (shard for leaf in jax.tree.leaves(state) for shard in leaf.addressable_shards):
        held[shard.device] += shard.data.nbytes
    return max(held.values())


@contextmanager
def memory_errors(order: Order, model: Transformer, device: Any) -> Iterator[None]:
    """Memory that runs out, in a sentence."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not is_full(error):
            raise Infeasible(what_failed(error)) from error
        limit = (device.memory_stats() or {}).get("bytes_limit", 0)
        raise Infeasible(no_room(order, model, str(error), device.device_kind, limit)) from None


def no_room(order: Order, model: Transformer, text: str, kind: str, limit: float) -> str:
    """Of a plan whose step gave the error `text` on devices of a kind that let a program have `limit` bytes."""
    verdict = judged_here(order, model, kind)
    takes = "" if verdict is None else f"; it takes {verdict.hbm_bytes / 1e9:.1f} GB by the planner"
    has = f"the {limit / 1e9:.1f} GB" if limit else "the memory"
    ways = ["a smaller microbatch"] if order.plan.microbatch > 1 else []
    ways += ["remat=block"] if order.plan.remat != "block" else []
    ways += ["more devices"]
    return (
        f"The plan {order.plan} does not fit {has} that a program has on {kind}{takes}{asked_words(text)}; "
        f"take {', '.join(ways[:-1])}{' or ' if len(ways) > 1 else ''}{ways[-1]}."
    )


class Stop:
    """Whether somebody asked the run to end."""

    def __init__(self) -> None:
        self.asked = ""

    def note(self, number: int, frame: FrameType | None) -> None:
        """A signal came; a second one of the keyboard ends at once."""
        del frame
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = signal.Signals(number).name

    @contextmanager
    def listening(self) -> Iterator["Stop"]:
        """Until the end of the block, signals to end are noted instead of obeyed."""
        signals = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self.note) for number in signals}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


Watch = Callable[[dict[str, Any]], None]


def train(order: Order, watch: Watch | None = None, profiler: StepProfiler | None = None) -> TrainResult:
    """Run an order to its last step; `watch` is called with the metrics of every step, `profiler`
    records some of them."""
    model = order.tuned()
    program, numerics = model.program(), numerics_of(order.model)
    order = settle_capacity(order, expands(program))
    tokens = open_data(order, program, order.run.data)
    trainer = make_trainer(order, program, numerics, _mesh(order), masked=tokens.masked, watched=True)
    kept = _checkpoints(order, tokens, str(program), trainer)
    try:
        with Stop().listening() as stop, memory_errors(order, model, trainer.mesh.local_devices[0]):
            exam = Exam(order, program, trainer)
            return _run(order, model, tokens, trainer, kept, stop, watch or (lambda _: None), profiler, exam)
    finally:
        if profiler is not None:
            profiler.stop()
        if kept is not None:
            kept.close()


def _mesh(order: Order) -> Mesh:
    """The plan's devices; every process of a run must have some of them."""
    mesh = mesh_of(order.plan)
    if jax.process_count() > 1 and mesh.size != jax.device_count():
        raise InputError(
            f"The plan {order.plan} uses {mesh.size} of the {jax.device_count()} devices that {jax.process_count()} "
            "processes have; with several processes it must use all."
        )
    return mesh


def _checkpoints(order: Order, tokens: TokenSource, program: str, trainer: Trainer) -> "Checkpoints | None":
    if not order.run.checkpoints:
        return None
    from dragonscale.runtime.train.checkpoints import Checkpoints  # with Orbax, which a run without them does not need

    facts = {
        "model": hashlib.sha256(program.encode()).hexdigest()[:16],
        "optimizer": order.plan.optimizer,
        **({"blocks": block_sizes(trainer.shape["optimizer"])} if order.plan.optimizer == "adam8" else {}),
        **({"alpha": order.adapter_scale, "frozen": order.tuning.frozen} if order.tuning.rank else {}),
        "data": tokens.fingerprint,
        **{name: getattr(order.run, name) for name in ("seed", "batch", "seq")},
    }
    return Checkpoints(order.run.checkpoints, order.run.keep, facts)


def _run(
    order: Order,
    model: Transformer,
    tokens: TokenSource,
    trainer: Trainer,
    kept: "Checkpoints | None",
    stop: Stop,
    watch: Watch,
    profiler: StepProfiler | None,
    exam: Exam,
) -> TrainResult:
    begun = kept.newest if kept is not None else None
    done = first = begun or 0
    if profiler is not None and order.run.steps - done < WARM + profiler.steps:
        raise InputError(
            f"--profile-steps {profiler.steps} records after {WARM} steps that warm up, and the run has "
            f"{order.run.steps - done} left; give --steps {done + WARM + profiler.steps} or more."
        )
    state = first_state(order, trainer) if begun is None or order.tuning.rank else {}
    if begun is not None and kept is not None:
        state |= kept.restore(_saved(trainer.shape))
    clock = Clock(order, model, trainer)
    metrics = Metrics(_metrics_path(order), done, _boards(order))
    losses = LossWatch(model.program().sections[0].dims["v"], metrics.losses[-BEFORE:])
    asked, saved, last = "", done, None
    try:
        batch = feed(trainer, tokens, order, done) if done < order.run.steps else None
        while done < order.run.steps and not asked:
            start = time.perf_counter()
            assert batch is not None
            rate = learning_rate(order.run, done)
            with profiler.around(done + 1) if profiler is not None else nullcontext():
                state, found = trainer.step(state, *batch, rate, _flags(trainer, stop))
                done += 1
                batch = feed(trainer, tokens, order, done) if done < order.run.steps else None
                values = {name: float(value) for name, value in found.items()}
            asked = stop.asked or "SIGTERM" if values.pop("stop") else ""
            values |= {"learning_rate": rate, **clock.tick(time.perf_counter() - start)}
            spike = losses.take(values["loss"])
            last = _checked(values, done, kept, saved, losses)
            line = {"step": done, **values, **exam.take(state, done), **({"spike": True} if spike else {})}
            metrics.write(line)
            watch(line)
            due = order.run.every and done % order.run.every == 0 and not spike
            if kept is not None and (asked or due or done == order.run.steps):
                kept.save(done, _saved(state))
                saved = done
        if kept is not None:
            kept.finish(saved)
    finally:
        metrics.close()
    if done == order.run.steps and order.run.save_weights:
        _save(order, model.program(), state)
    result = clock.result(first, done, asked or "finished", last, state)
    return msgspec.structs.replace(result, eval_loss=exam.last)


def _saved(state: State) -> State:
    """What a checkpoint has of a state: all but frozen weights, which a run reads again."""
    return {name: value for name, value in state.items() if name != "frozen"}


def first_state(order: Order, trainer: Trainer) -> State:
    """Random weights, or those of a Hugging Face checkpoint; adapters are random."""
    run = order.run
    if not run.weights:
        return trainer.start(run.seed)
    dtype, program = DTYPES["bf16"] if order.tuning.rank else numpy.float32, load_model(order.model).program()
    return trainer.start_from(load_weights(SafeTensors(run.weights), program, dtype), run.seed)


def _metrics_path(order: Order) -> str:
    """Only the first process writes them, beside the checkpoints if nobody says where."""
    if jax.process_index():
        return ""
    beside = str(Path(order.run.checkpoints) / "metrics.jsonl") if order.run.checkpoints else ""
    return order.run.metrics or beside


def _boards(order: Order) -> tuple[Board, ...]:
    run, about = order.run, {"model": order.model, "plan": str(order.plan), **asdict(order.run)}
    asked = [("tensorboard", "", run.tensorboard)] if run.tensorboard else []
    asked += [("wandb", run.wandb, run.checkpoints or ".")] if run.wandb else []
    return () if jax.process_index() else tuple(Board(*one, about) for one in asked)


def _save(order: Order, program: Program, state: State) -> None:
    """The trained model as a Hugging Face folder, in what it was multiplied in, with its tokenizer where that is
    known."""
    run, gather = order.run, partial(multihost_utils.process_allgather, tiled=True)
    near = jax.tree.map(lambda leaf: leaf if leaf.is_fully_addressable else gather(leaf), state["params"])
    whole = jax.tree.map(numpy.asarray, near)
    if jax.process_index():
        return
    if order.tuning.rank:
        save_adapters(run.save_weights, order.model, whole, program, order.tuning.rank, order.adapter_scale)
        return
    own = tokenizer_folder(order.model, run.tokenizer, run.weights)
    save_folder(run.save_weights, order.model, whole, program, DTYPES[run.dtype])
    if own is not None and not own.samefile(run.save_weights):
        for one in (file for name in TOKENIZER_FILES for file in own.glob(name)):
            shutil.copy(one, run.save_weights)


def _flags(trainer: Trainer, stop: Stop) -> jax.Array:
    value = numpy.full(1, bool(stop.asked), numpy.int32)
    return jax.make_array_from_callback((trainer.mesh.size,), trainer.flags, lambda _: value)


def _checked(values: dict[str, Any], step: int, kept: "Checkpoints | None", saved: int, losses: LossWatch) -> float:
    wrong = next((name for name in ("loss", "grad_norm") if not math.isfinite(values[name])), "")
    if not wrong and not losses.diverged:
        return values["loss"]
    told = f"{values[wrong]}" if wrong else f"{values['loss']:.4g} after {losses.best:.4g}: the run diverges"
    where = f"the checkpoint of step {saved} is whole" if kept is not None and saved else "nothing was saved"
    raise Infeasible(
        f"The {'gradient' if wrong == 'grad_norm' else 'loss'} of step {step} is {told}; {where}. Take a lower "
        "learning rate, a longer warmup, or a smaller clip."
    )
