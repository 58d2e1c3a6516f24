"""Times of steps and what they say, beside what was planned."""

import statistics
from collections import Counter
from typing import Any

import jax

from dragonscale.models.transformer import Transformer, count_parameters
from dragonscale.runtime.train.planned import TrainResult, chip_of, judged_here, step_flops
from dragonscale.runtime.train.settings import Order
from dragonscale.runtime.train.step import State, Trainer


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
        run, devices = self.order.run, self.trainer.mesh.size
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
        )


def own_bytes_per_device(state: State) -> int:
    """Bytes of weights and optimizer state on the fullest device of this process."""
    held: Counter[Any] = Counter()
    for shard in (shard for leaf in jax.tree.leaves(state) for shard in leaf.addressable_shards):
        held[shard.device] += shard.data.nbytes
    return max(held.values())
