"""What a whole run takes: steps, days, chip-hours, dollars, energy; and whether its batch and token count are sensible.

>>> budget = run_budget(tokens=15e12, batch=4e6, step_s=3.0, chips=8960, price=4.2)
>>> round(budget.days), round(budget.chip_hours / 1e6)
(130, 28)
"""

import math
from dataclasses import dataclass

from dragonscale.models.lora import PART
from dragonscale.models.transformer import count_parameters
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.cost.goodput import Run, run_goodput
from dragonscale.training.memory.section_memory import checkpoint_bytes
from dragonscale.training.plan.plan import Plan

CHINCHILLA = 20.0
"""Tokens per parameter at which a fixed compute budget is spent best: Hoffmann et al. 2022, Training Compute-Optimal
Large Language Models (arXiv:2203.15556), table 3."""

LOSS = (1.69, 406.4, 0.34, 410.7, 0.28)
"""E, A, alpha, B and beta of the loss E + A/N^alpha + B/D^beta: Hoffmann et al. 2022, equation 10."""

CRITICAL = (2.1e8, 0.21)
"""B* tokens and alpha_B of the critical batch B*/L^(1/alpha_B) at loss L: Kaplan et al. 2020, Scaling Laws for Neural
Language Models (arXiv:2001.08361), section 5.1. Fitted on small models: read it as an order of magnitude."""


@dataclass(frozen=True)
class Budget:
    """A run of `steps` steps. `cost_usd` is None without a price, `energy_kwh` without a power."""

    tokens: float
    steps: int
    seconds: float
    chip_hours: float
    cost_usd: float | None
    energy_kwh: float | None

    @property
    def days(self) -> float:
        return self.seconds / 86400


def run_budget(
    tokens: float, batch: float, step_s: float, chips: int, price: float | None = None, power: float | None = None
) -> Budget:
    """A run over `tokens`, in steps of `batch` tokens. `price` is dollars per chip and hour; `power` watts of a chip
    (its limit, so the energy is an upper bound for the chips and leaves out hosts and cooling)."""
    steps = math.ceil(tokens / batch)
    seconds = steps * step_s
    hours = seconds / 3600 * chips
    cost = None if price is None else hours * price
    return Budget(tokens, steps, seconds, hours, cost, None if power is None else hours * power / 1e3)


def planned_run(job: Job, plan: Plan, clean_s: float) -> Run:
    """A run of a plan whose steps take so many seconds, with failures as the job meets them. Of adapters nothing else
    is saved."""
    counts = count_parameters(job.model)
    trained = counts.by_part.get(PART, counts.total)
    return run_goodput(job.slice, clean_s, checkpoint_bytes(trained, plan, job.stack), job.run)


def chinchilla_tokens(parameters: float) -> float:
    """The compute-optimal number of tokens for a model.

    >>> chinchilla_tokens(70e9)
    1400000000000.0
    """
    return CHINCHILLA * parameters


def expected_loss(parameters: float, tokens: float) -> float:
    """The loss that the Chinchilla fit expects."""
    least, a, alpha, b, beta = LOSS
    return least + a / parameters**alpha + b / tokens**beta


def critical_batch(parameters: float, tokens: float) -> float:
    """Tokens of a batch beyond which more of them buy little: twice the batch no longer halves the steps needed.

    >>> round(critical_batch(70e9, 15e12) / 1e6)
    11
    """
    scale, exponent = CRITICAL
    return scale / expected_loss(parameters, tokens) ** (1 / exponent)


def batch_warning(parameters: float, tokens: float, batch: float) -> str:
    """A sentence if the batch is larger than the critical one, else nothing."""
    limit = critical_batch(parameters, tokens)
    if batch <= limit:
        return ""
    return (
        f"A batch of {batch / 1e6:.3g}M tokens is {batch / limit:.2g} times the critical batch (about "
        f"{limit / 1e6:.2g}M "
        f"for this model and {tokens / 1e12:.3g}T tokens): the run will need more tokens to reach the same loss."
    )
