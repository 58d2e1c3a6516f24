"""An engine as it is launched for a model on a chip: its constants, and what the command line says of its limits."""

from dataclasses import dataclass
from typing import Any

from dragonscale.errors import InputError
from dragonscale.hardware import Chip
from dragonscale.models.transformer import Transformer
from dragonscale.serving.engine import Engine, adjust, load_engine


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
        if self.memory_fraction is not None and not 0 < self.memory_fraction <= 1:
            raise InputError(f"--memory-fraction is {self.memory_fraction}; it is above 0 and at most 1.")

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """The same as settings of an engine's groups."""
        scheduling = {"max_sequences": self.max_seqs, "max_tokens": self.token_budget}
        groups = {"scheduling": scheduling, "memory": {"share": self.memory_fraction}}
        found = {name: {key: value for key, value in own.items() if value is not None} for name, own in groups.items()}
        return {name: own for name, own in found.items() if own}


def engine_on(name: str, chip: Chip, model: Transformer, limits: LaunchLimits | None = None) -> Engine:
    """The engine called `name` as it is launched for a model on a chip, with the limits that were given."""
    del chip, model
    engine = load_engine(name)
    settings = limits.settings if limits is not None else {}
    return adjust(engine, **settings) if settings else engine
