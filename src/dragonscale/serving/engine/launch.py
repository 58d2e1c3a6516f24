"""An engine as it is launched on a chip: its constants, the defaults that it takes there, and what the launch says
otherwise.

Engines choose their token budget, their sequences at once, their captured graphs and their share of the memory by the
chip they find. `engines.toml` lists these defaults as rows with conditions and a source (`[[vllm.launch]]`): every row
whose conditions hold is laid over those before it. `load_engine` has the constants without them, as recipes of
published runs start from.

>>> from dragonscale.physics.hardware import load_chip
>>> from dragonscale.models import load_model
>>> llama = load_model("llama3-8b")
>>> [engine_on("vllm", load_chip(chip), llama).scheduling.max_tokens for chip in ("b200", "h100", "a100")]
[16384, 8192, 2048]
>>> engine_on("vllm,scheduling.max_tokens=4096", load_chip("h100"), llama).scheduling.max_tokens
4096
"""

from dataclasses import dataclass
from typing import Any

from dragonscale.errors import InputError
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip
from dragonscale.plan.settings import merge_groups
from dragonscale.serving.engine.auto import AUTO, auto_choice
from dragonscale.serving.engine.engine import Engine, adjust, load_engine, split_settings
from dragonscale.serving.engine.engine_settings import LaunchRow
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.training.plan.legality import family

GIB = 2.0**30
NO_GRAPHS = "host.graphs=false"
"""The setting of an engine that is launched without captured graphs (`--enforce-eager`)."""


LEAST_BUDGET = 16
"""Tokens of an iteration: a page of the KV cache, which is the least that engines cut prompts into. vLLM refuses fewer
than its sequences too (config/scheduler.py: max_num_batched_tokens must be no less than max_num_seqs)."""


@dataclass(frozen=True)
class LaunchLimits:
    """What a launch says of an engine's limits; None leaves its default."""

    max_seqs: int | None = None
    token_budget: int | None = None
    memory_fraction: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_seqs", "token_budget"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= 1 << 24:
                raise InputError(f"--{name.replace('_', '-')} is {value}; write a whole number from 1 to {1 << 24:,}.")
        if self.token_budget is not None and self.token_budget < LEAST_BUDGET:
            raise InputError(f"--token-budget is {self.token_budget}; engines take {LEAST_BUDGET} tokens or more.")
        if self.token_budget is not None and self.max_seqs is not None and self.token_budget < self.max_seqs:
            raise InputError(
                f"--token-budget {self.token_budget} is less than --max-seqs {self.max_seqs}; every sequence that "
                "decodes needs a token "
                "of an iteration."
            )
        if self.memory_fraction is not None and not 0 < self.memory_fraction <= 1:
            raise InputError(f"--memory-fraction is {self.memory_fraction}; it is above 0 and at most 1.")

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """The same as settings of an engine's groups."""
        scheduling = {"max_sequences": self.max_seqs, "max_tokens": self.token_budget}
        groups = {"scheduling": scheduling, "memory": {"share": self.memory_fraction}}
        found = {name: {key: value for key, value in own.items() if value is not None} for name, own in groups.items()}
        return {name: own for name, own in found.items() if own}


def applies(row: LaunchRow, chip: Chip) -> bool:
    """Whether a row of defaults is for a chip."""
    named = (not row.names or chip.kin in row.names) and chip.kin not in row.without
    native = not row.format or chip.format(row.format) == "native"
    return named and native and row.family in ("", family(chip)) and row.least_gib <= chip.visible / GIB < row.below_gib


def launch_defaults(engine: Engine, chip: Chip) -> dict[str, dict[str, Any]]:
    """The settings that an engine takes on a chip by itself."""
    found: dict[str, Any] = {}
    for row in engine.launch:
        if applies(row, chip):
            found = merge_groups(found, {"memory": row.memory, "scheduling": row.scheduling, "host": row.host})
    return found


STATED = {"reserve_bytes": 0.0, "rank_bytes": 0.0, "least_reserve_bytes": 0.0}
"""Where the fraction for weights and cache is stated, it is not found from what has to stay free."""


def engine_on(
    name: str,
    chip: Chip,
    model: Transformer,
    limits: LaunchLimits | None = None,
    chips: int | None = None,
    plan: ServingPlan | None = None,
) -> Engine:
    """An engine by name (or `auto`: what people run for that model there) as it is launched on a chip: its constants,
    its defaults there, settings in the name, then limits. `chips` are those of one copy of the model and `plan` its
    plan, where they are known."""
    first, said = split_settings(name)
    engine = load_engine(auto_choice(chip, model, chips, plan).engine if first == AUTO else first)
    groups = merge_groups(launch_defaults(engine, chip), said)
    asked = limits.settings if limits is not None else {}
    if "memory" in asked and groups.get("memory", {}).get("share_of", engine.memory.share_of) == "static":
        asked["memory"] = STATED | asked["memory"]
    groups = merge_groups(groups, asked)
    return adjust(engine, **groups) if groups else engine
