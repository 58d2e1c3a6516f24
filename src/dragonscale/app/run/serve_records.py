"""The record that `dscale run serve` answers with, when the server has stopped."""

from collections.abc import Collection
from typing import Any

import msgspec

from dragonscale.app.record import Record
from dragonscale.physics.units import render
from dragonscale.sheets.sheet import Sheet


class ServedTimes(msgspec.Struct):
    """A latency over requests."""

    p50: float
    p95: float


class ServeRun(Record):
    """What a server did. `kv_tokens` is the room of one replica's KV cache, `page_bytes` are of one chip;
    `tokens_per_s` are output tokens from the first request to the last token. `planned` is the planner's steady state,
    none where the chip is not known."""

    model: str
    plan: str
    replicas: int
    prefill_replicas: int
    devices: int
    device_kind: str
    parameters: int
    kv_tokens: int
    page_bytes: int
    planned_page_bytes: float
    start_s: float
    requests: int
    failed: int
    restarts: int
    prompt_tokens: int
    output_tokens: int
    tokens_per_s: float | None
    ttft_s: ServedTimes | None
    tpot_s: ServedTimes | None
    planned: Any

    def headline(self) -> str:
        rate = "" if self.tokens_per_s is None else f", {self.tokens_per_s:,.0f} output tokens/s"
        return f"{self.model}: {self.requests:,} requests{rate}"

    def sheet(self, detail: bool = False) -> Sheet:  # noqa: ARG002  there is no more to tell
        from dragonscale.app.run.serve_sheet import run_sheet

        return run_sheet(self)


def served_times(values: Collection[float]) -> ServedTimes | None:
    """The median and the 95th percentile.

    >>> served_times([1.0, 2.0, 3.0])
    ServedTimes(p50=2.0, p95=3.0)
    """
    ranked = sorted(values)
    if not ranked:
        return None
    return ServedTimes(*(ranked[min(int(part * len(ranked)), len(ranked) - 1)] for part in (0.5, 0.95)))


def beside(name: str, found: ServedTimes | None, planned: float | None) -> str:
    """A latency in a line: `TTFT 41 ms (p95 60 ms, planned 39 ms)`."""
    if found is None:
        return f"{name} -"
    told = "" if planned is None else f", planned {render(planned, 's')}"
    return f"{name} {render(found.p50, 's')} (p95 {render(found.p95, 's')}{told})"
