"""An engine as it is launched on a chip: its constants, its defaults on that chip, and the flags of the launch.

Engines choose their token budget, their maximum number of sequences, their captured graphs and their fraction of the
memory by the chip they run on. `engines.toml` lists these defaults as rows with conditions and a source
(`[[vllm.launch]]`); every row whose conditions hold overrides those before it. `load_engine` returns the constants
without them, as recipes of published runs start from.

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
MIN_TOKEN_BUDGET = 16
"""Tokens of an iteration: one page of the KV cache, the smallest chunk that engines cut prompts into. vLLM also refuses
a budget below its number of sequences (config/scheduler.py: max_num_batched_tokens must be no less than
max_num_seqs)."""
MAX_COUNT = 1 << 24
"""Largest number of sequences or tokens that a launch flag accepts."""


@dataclass(frozen=True)
class LaunchLimits:
    """The limits that a launch sets; None leaves the engine's default."""

    max_seqs: int | None = None
    token_budget: int | None = None
    memory_fraction: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_seqs", "token_budget"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MAX_COUNT:
                raise InputError(
                    f"--{name.replace('_', '-')} is {value}; write a whole number from 1 to {MAX_COUNT:,}."
                )
        if self.token_budget is not None and self.token_budget < MIN_TOKEN_BUDGET:
            raise InputError(f"--token-budget is {self.token_budget}; engines take {MIN_TOKEN_BUDGET} tokens or more.")
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
        """The limits that are set, as settings of an engine by group."""
        groups: dict[str, dict[str, Any]] = {}
        if self.max_seqs is not None:
            groups.setdefault("scheduling", {})["max_sequences"] = self.max_seqs
            groups["scheduling"]["draft_sequences"] = 0  # who says how many means it
        if self.token_budget is not None:
            groups.setdefault("scheduling", {})["max_tokens"] = self.token_budget
        if self.memory_fraction is not None:
            groups["memory"] = {"share": self.memory_fraction}
        return groups


def applies(row: LaunchRow, chip: Chip) -> bool:
    """Whether a row of launch defaults is for a chip."""
    named = (not row.names or chip.kin in row.names) and chip.kin not in row.without
    native = not row.format or chip.format(row.format) == "native"
    return named and native and row.family in ("", family(chip)) and row.least_gib <= chip.visible / GIB < row.below_gib


def launch_defaults(engine: Engine, chip: Chip) -> dict[str, dict[str, Any]]:
    """The settings, by group, that an engine chooses on a chip when the launch sets none."""
    defaults: dict[str, Any] = {}
    for row in engine.launch:
        if applies(row, chip):
            # a later row overrides an earlier one
            defaults = merge_groups(defaults, {"memory": row.memory, "scheduling": row.scheduling, "host": row.host})
    return defaults


STATIC_FRACTION = {"reserve_bytes": 0.0, "rank_bytes": 0.0, "least_reserve_bytes": 0.0}
"""With an explicit fraction for weights and cache, the engine no longer derives it from what has to stay free."""


def engine_on(
    name: str,
    chip: Chip,
    model: Transformer,
    limits: LaunchLimits | None = None,
    chips: int | None = None,
    plan: ServingPlan | None = None,
) -> Engine:
    """An engine as it is launched on a chip.

    `name` is an engine's, or `auto` for the one that people use for such a model there, with settings after commas.
    Later ones override earlier ones: constants, defaults on the chip, settings in the name, `limits`. `chips` are those
    of one copy of the model and `plan` its plan, where they are known.
    """
    first, settings = split_settings(name)
    if first == AUTO:
        first = auto_choice(chip, model, chips, plan).engine
    engine = load_engine(first)
    groups = merge_groups(launch_defaults(engine, chip), settings)
    flags = limits.settings if limits is not None else {}
    if "memory" in flags and groups.get("memory", {}).get("share_of", engine.memory.share_of) == "static":
        flags["memory"] = STATIC_FRACTION | flags["memory"]
    groups = merge_groups(groups, flags)
    return adjust(engine, **groups) if groups else engine
