"""What a whole run takes: steps, days, chip-hours, dollars, energy; and whether its batch and token count are sensible.

>>> budget = run_budget(tokens=15e12, batch=4e6, step_s=3.0, chips=8960, price=4.2)
>>> round(budget.days), round(budget.chip_hours / 1e6)
(130, 28)
"""

import math
from dataclasses import dataclass

from dragonscale.models.lora import PART
from dragonscale.models.scaling_laws import critical_batch
from dragonscale.models.transformer import count_parameters
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.cost.goodput import Run, run_goodput
from dragonscale.training.memory.section_memory import checkpoint_bytes
from dragonscale.training.plan.plan import Plan


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
    chip_hours = seconds / 3600 * chips
    cost_usd = None if price is None else chip_hours * price
    energy_kwh = None if power is None else chip_hours * power / 1e3
    return Budget(tokens, steps, seconds, chip_hours, cost_usd, energy_kwh)


def planned_run(job: Job, plan: Plan, clean_s: float) -> Run:
    """A run of a plan whose steps take `clean_s` seconds in all, with failures under the job's conditions."""
    counts = count_parameters(job.model)
    # Checkpoints of a run that trains adapters have the adapters alone.
    trained = counts.by_part.get(PART, counts.total)
    return run_goodput(job.slice, clean_s, checkpoint_bytes(trained, plan, job.stack), job.run)


def batch_warning(parameters: float, tokens: float, batch: float) -> str:
    """A sentence if the batch (in tokens) is larger than the critical batch, else an empty text."""
    limit = critical_batch(parameters, tokens)
    if batch <= limit:
        return ""
    return (
        f"A batch of {batch / 1e6:.3g}M tokens is {batch / limit:.2g} times the critical batch (about "
        f"{limit / 1e6:.2g}M "
        f"for this model and {tokens / 1e12:.3g}T tokens): the run will need more tokens to reach the same loss."
    )
