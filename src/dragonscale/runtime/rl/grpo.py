"""GRPO on the devices there are: answers by our engine, rewards by a rule, updates, weights handed over in memory.

Both live in one process on the same devices. A step draws prompts, generates `samples` answers to each, rewards them,
reads their log-probabilities under the policy and a frozen copy of its first weights, updates in one or several parts,
and puts the new weights into the engine's layout. Every phase is timed, to stand beside its plan.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy

from dragonscale.runtime.numerics import numerics_of
from dragonscale.runtime.place import mesh_of
from dragonscale.runtime.rl.answers import Answerer, PhaseClock, rows_of
from dragonscale.runtime.rl.log_probabilities import log_probabilities
from dragonscale.runtime.rl.rules import RULES, advantages
from dragonscale.runtime.train.gradients import DTYPES
from dragonscale.runtime.train.loop import first_state
from dragonscale.runtime.train.rewarded import Rewarded, divergence
from dragonscale.runtime.train.settings import Order, learning_rate
from dragonscale.runtime.train.step import State, Trainer, make_trainer
from dragonscale.serving.engine.plan import ServingPlan

PHASES = ("generation", "reward", "logprob", "reference", "update", "weight transfer")
ENDS = 64
"""Of the rule `short`, one token of so many ends an answer: random weights end it sooner or later."""


@dataclass(frozen=True)
class GrpoOrder:
    """A run: the trainer's order (whose batch is an update's, whose sequences have room for prompt and answer), the
    engine's plan, and what a step asks. `kl` 0 has no reference."""

    train: Order
    rollout: ServingPlan
    prompts: int
    samples: int
    prompt: int
    output: int
    rule: str = "low"
    updates: int = 1
    clip: float = 0.2
    kl: float = 0.0
    together: int = 64

    @property
    def answers(self) -> int:
        return self.prompts * self.samples


class GrpoStep(msgspec.Struct):
    """One step: the mean reward and length of its answers, the loss of its last update, the KL divergence of its
    answers from the reference (before it), and the seconds of its phases."""

    step: int
    reward: float
    length: float
    loss: float
    grad_norm: float
    kl: float
    step_s: float
    phases: dict[str, float]


@dataclass
class GrpoParts:
    """What steps are made of."""

    order: GrpoOrder
    trainer: Trainer
    answerer: Answerer
    read: Callable[..., jax.Array]
    state: State
    reference: Any
    vocabulary: int

    def put(self, array: Any) -> jax.Array:
        """An array [answers, t] as passes of a microbatch on every replica."""
        each = self.order.train.plan.replicas * self.order.train.plan.microbatch
        return jax.device_put(array.reshape(-1, each, array.shape[-1]), self.trainer.batch)


def prepare(order: GrpoOrder) -> GrpoParts:
    """The trainer and the engine, with the first weights in both."""
    model = order.train.tuned()
    program, numerics, run = model.program(), numerics_of(order.train.model), order.train.run
    mesh = mesh_of(order.train.plan)
    trainer = make_trainer(order.train, program, numerics, mesh, masked=True)
    dtype = DTYPES[run.dtype]
    together = min(order.together, order.answers)
    sizes = (order.prompt, order.output)
    answerer = Answerer(program, numerics, order.rollout, dtype, together, sizes, run.seed)
    state = first_state(order.train, trainer)
    answerer.take(state["params"])
    copied = jax.jit(lambda params: jax.tree.map(lambda one: one.astype(dtype, copy=True), params))
    reference = copied(state["params"]) if order.kl else None
    read = log_probabilities(order.train, program, numerics, mesh)
    return GrpoParts(order, trainer, answerer, read, state, reference, program.sections[0].dims["v"])


def grpo(parts: GrpoParts, watch: Callable[[GrpoStep], None] | None = None) -> list[GrpoStep]:
    """All steps of a run; `watch` hears of each."""
    run, steps = parts.order.train.run, list[GrpoStep]()
    dice = numpy.random.default_rng(run.seed)
    for done in range(run.steps):
        steps.append(_step(parts, done, dice))
        if watch is not None:
            watch(steps[-1])
    return steps


def _step(parts: GrpoParts, done: int, dice: numpy.random.Generator) -> GrpoStep:
    order, clock = parts.order, PhaseClock()
    prompts = dice.integers(0, parts.vocabulary, (order.prompts, order.prompt)).tolist()
    ends = [*range(0, parts.vocabulary, ENDS)] if order.rule == "short" else []
    answers = clock.ends("generation", parts.answerer.answer(prompts, order.samples, order.output, ends))
    rewards = [RULES[order.rule](answer, parts.vocabulary) for answer in answers]
    gained = advantages(rewards, order.samples)
    tokens, targets = rows_of(prompts, answers, order.samples, order.train.run.seq)
    worth = numpy.broadcast_to(gained.astype(numpy.float32)[:, None], targets.shape)
    tokens, targets, worth = map(parts.put, (tokens, targets, worth))
    clock.ends("reward", worth)
    old = clock.ends("logprob", parts.read(parts.state["params"], tokens, targets))
    reference, apart = old, 0.0
    if parts.reference is not None:
        reference = clock.ends("reference", parts.read(parts.reference, tokens, targets))
        apart = float(divergence(old, reference).sum() / (targets >= 0).sum())
    found: dict[str, Any] = {}
    rate, size = learning_rate(order.train.run, done), order.train.passes
    flags = jax.device_put(jnp.zeros(parts.trainer.mesh.size, jnp.int32), parts.trainer.flags)
    for at in range(0, tokens.shape[0], size):
        arrays = (one[at : at + size] for one in (targets, worth, old, reference))
        goal = Rewarded(*arrays, clip=order.clip, kl=order.kl)
        parts.state, found = parts.trainer.step(parts.state, tokens[at : at + size], goal, rate, flags)
    clock.ends("update", (parts.state, found))
    parts.answerer.take(parts.state["params"])
    clock.ends("weight transfer")
    lengths = [len(answer) for answer in answers]
    means = (statistics.fmean(rewards), statistics.fmean(lengths))
    losses = (float(found["loss"]), float(found["grad_norm"]))
    return GrpoStep(done + 1, *means, *losses, apart, sum(clock.seconds.values()), clock.seconds)
