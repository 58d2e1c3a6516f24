"""Frameworks of reinforcement learning: their trainers, engine, modes and weight transfer, by `frameworks.toml`.

>>> framework("nemo-rl").engine, algorithm("ppo").critic
('vllm', True)
>>> round(transfer_seconds("bucketed", 470e9, 64e9, 64), 1)
23.9
"""

import functools
from typing import Any

import msgspec

from dragonscale.errors import unknown
from dragonscale.plan.settings import shipped_table

MODES = ("colocated", "one-step-off", "async")
AT_ONCE = ("one-step-off", "async")
"""Modes in which trainer and engine work at the same time. (On two pools in turns the mode is `separate`, which no
search offers.)"""


class StepErrors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of `errors`: what published steps took over what was expected, minus one."""

    low: float
    middle: float
    high: float
    runs: int


class Framework(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of `frameworks`."""

    trainers: tuple[str, ...]
    engine: str
    modes: tuple[str, ...]
    colocated: str
    split: str
    share_colocated: float
    share_split: float
    why: str
    offload_rate: float = 0.0
    always_offloads: bool = False
    pads_stages: bool = False
    strict_age: bool = False
    host_bound: bool = True
    reference_copies: float = 0.0
    ray: bool = False
    read_batch: int = 1
    limits: dict[str, str] = {}
    engine_casts: bool = False
    prefills_again: bool = False
    returned: tuple[str, ...] = ()
    pads_linear: tuple[str, ...] = ()
    name: str = ""
    sleeps: bool = True
    stays: bool = False
    older_share: float = 0.0
    older: str = ""
    reference: bool = True
    wider: dict[str, str] = {}
    wider_by: str = ""

    def token_s(self, mode: str) -> float:
        """Seconds of a replica's host for each token with its log-probability."""
        return tables()["returned"]["token_s"] if mode in self.returned else 0.0

    @property
    def errors(self) -> StepErrors:
        """The errors of its published steps; of all frameworks if none of its own is known."""
        rows: dict[str, StepErrors] = _rows("errors", StepErrors)
        return rows.get(self.name, rows["others"])

    def method(self, mode: str) -> str:
        """The method by which weights travel to the engine."""
        return self.colocated if mode == "colocated" else self.split

    def with_share(self, share: float | None) -> "Framework":
        """The same with another fraction of HBM for the engine; as it is without one."""
        if share is None:
            return self
        return msgspec.structs.replace(self, share_colocated=share, share_split=share)

    def share(self, mode: str) -> float:
        """The fraction of HBM that the engine uses."""
        return self.share_colocated if mode == "colocated" else self.share_split


class WeightTransfer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of `methods`."""

    start_s: float
    rate: float
    senders: int
    why: str
    least: float = 0.0


class Algorithm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of `algorithms`."""

    reference: bool
    why: str
    critic: bool = False


@functools.cache
def tables() -> dict[str, Any]:
    """`frameworks.toml`."""
    return shipped_table("simulation.rl", "frameworks.toml")


@functools.cache
def _rows(kind: str, row: type[Any]) -> dict[str, Any]:
    return msgspec.convert(tables()[kind], dict[str, row])


def frameworks() -> dict[str, Framework]:
    """All known frameworks by name."""
    rows: dict[str, Framework] = _rows("frameworks", Framework)
    return {name: msgspec.structs.replace(row, name=name) for name, row in rows.items()}


def framework(name: str) -> Framework:
    """A framework by name."""
    word = name.strip().lower().replace("_", "-")
    if word not in frameworks():
        raise unknown("framework of reinforcement learning called", name, frameworks())
    return frameworks()[word]


def algorithm(name: str) -> Algorithm:
    """An algorithm by name."""
    rows = _rows("algorithms", Algorithm)
    if name.strip().lower() not in rows:
        raise unknown("algorithm", name, rows)
    return rows[name.strip().lower()]


def transfer_seconds(method: str, volume: float, card: float, chips: int) -> float:
    """Seconds to send `volume` bytes of weights to the engine.

    The method's own rate, or the network cards of its senders (`card` bytes per second each, of `chips` chips) if they
    are slower. Where the start-up time consists of a message for each tensor, a model below the `least` size that the
    rate was published for takes less in proportion.

    >>> round(transfer_seconds("broadcast", 1.2e9, 25e9, 4), 1)
    0.8
    """
    row = _rows("methods", WeightTransfer)[method]
    # start-up time plus volume over the slower of the method's rate and the network
    wires = card * (min(row.senders, chips) or chips)  # no number of senders: all chips send
    return (row.start_s + max(volume, row.least) / min(row.rate, wires)) * min(volume / max(row.least, 1.0), 1.0)


def switching_seconds(row: Framework, weights: float, optimizer: float, host_link: float) -> float:
    """Seconds to switch between engine and trainer on the same chips.

    The engine sleeps and wakes, and a chip's `weights` and `optimizer` bytes go to the host and come back: weights
    through pinned memory, optimizer state at the framework's rate and back at that of pageable memory, or the link's if
    that is slower.

    >>> round(switching_seconds(framework("nemo-rl"), 9e9, 18e9, 55e9), 1)
    13.2
    """
    turns = tables()["turns"]
    # rates to the host and back; a framework without a rate of its own uses the link's
    down, up = (min(rate or host_link, host_link) for rate in (row.offload_rate, turns["pageable"]))
    return turns["sleep_s"] + turns["wake_s"] + 2 * weights / host_link + optimizer / down + optimizer / up
