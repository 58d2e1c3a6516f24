"""How a run is made and measured."""

from dataclasses import dataclass
from math import inf

from dragonscale.errors import InputError


@dataclass(frozen=True)
class SimulationOptions:
    """`warmup` and `cooldown` are the shares of the requests, by order of arrival, at the beginning and the end of a
    run that leave no latency behind. `ttft_s` and `tpot_s` are the targets that goodput counts. A run stops at
    `until_s` with whatever is unfinished. `keep` keeps every request's story; `events` bounds those of the Perfetto
    trace, which begins at `events_from_s`; `watch` says of how many replicas it is kept what each does over time. With
    `leap` off every decode step is an event of its own: the same results, slowly."""

    seed: int = 0
    warmup: float = 0.0
    cooldown: float = 0.0
    ttft_s: float = inf
    tpot_s: float = inf
    until_s: float = inf
    keep: bool = False
    events: int = 0
    events_from_s: float = 0.0
    leap: bool = True
    watch: int = 0

    def __post_init__(self) -> None:
        if not (self.warmup >= 0 and self.cooldown >= 0 and self.warmup + self.cooldown < 1):
            raise InputError("Warm-up and cool-down are shares of the requests, from 0, and leave some between them.")
        if self.ttft_s <= 0 or self.tpot_s <= 0 or self.until_s <= 0:
            raise InputError("Latency targets and the end of a run are times above 0 seconds.")
        if self.seed < 0 or self.events < 0 or self.watch < 0:
            raise InputError("A seed and numbers of events and of replicas to watch are whole numbers of 0 or more.")
