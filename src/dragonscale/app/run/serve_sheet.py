"""`dscale run serve` laid out: what it is about to serve, and at its end what it reached beside what was planned."""

from typing import Any

from dragonscale.app.run.serve_order import ServeOrder
from dragonscale.app.run.serve_planned import PlannedServing
from dragonscale.runtime.server.wire import WorkerReady
from dragonscale.sheets.sheet import Column, Prose, Sheet, Title, amount, table


def start_sheet(
    order: ServeOrder, facts: WorkerReady, planned: PlannedServing | None, page_bytes: float, start_s: float
) -> Sheet:
    """What is ready to be asked."""
    first = order.first
    tokens = (facts.pages - 1) * facts.page * facts.ranks
    rows = [
        ("devices", f"{facts.devices} x {facts.device_kind}", planned and planned.slice),
        ("KV page", f"{amount(facts.page_bytes, 'bytes')} of {facts.page} tokens", amount(page_bytes, "bytes")),
        ("KV room", f"{tokens:,} tokens", planned and f"{planned.tokens:,.0f} tokens"),
        ("at once", f"{first.sequences * facts.ranks} sequences of up to {first.length:,} tokens", None),
        ("TTFT", None, planned and amount(planned.ttft_s, "s")),
        ("TPOT", None, planned and amount(planned.tpot_s, "s")),
    ]
    head = f"{order.name}: {facts.parameters:,} parameters"
    prefill = sum(one.role == "prefill" for one in order.workers)
    replicas = len(order.workers) - prefill
    count = f", {prefill} that prefill and {replicas} that decode" if prefill else f", {replicas} replicas"
    count = f"{count}, below is one that decodes" if prefill else f"{count}, each as below"
    count = count if len(order.workers) > 1 else ""
    aside = f"plan {order.plan}{count}; {facts.programs} programs ready in {start_s:.0f} s"
    columns = ["", Column("", right=True), Column("planned", right=True)]
    remark = ""
    if planned is not None and planned.ttft_s is not None:
        remark = f"Planned: {planned.batch} requests of {planned.prompt:,} + {planned.output:,} tokens under way."
    return Sheet((Title(head, aside), table(columns, rows), *((Prose(remark),) if remark else ())))


def run_sheet(result: Any) -> Sheet:
    """The run and the plan side by side."""
    planned = result.planned

    def times(name: str) -> str | None:
        found = getattr(result, name)
        return None if found is None else f"{amount(found.p50, 's')} (p95 {amount(found.p95, 's')})"

    rate = result.tokens_per_s
    rows = [
        ("requests", f"{result.requests:,}", None),
        ("failed or given up", f"{result.failed:,}", None),
        ("TTFT", times("ttft_s"), planned and amount(planned.ttft_s, "s")),
        ("TPOT", times("tpot_s"), planned and amount(planned.tpot_s, "s")),
        (
            "output tokens/s",
            rate and f"{rate:,.0f}",
            planned and planned.tokens_per_s and f"{planned.tokens_per_s:,.0f}",
        ),
        ("KV page on a chip", amount(result.page_bytes, "bytes"), amount(result.planned_page_bytes, "bytes")),
    ]
    said = []
    if planned is not None:
        said.append(
            f"Planned is a steady state: {planned.batch} requests of {planned.prompt:,} + {planned.output:,} tokens "
            f"under way in one replica on {planned.slice}."
        )
    if result.restarts:
        said.append(f"Workers died and were started again: {result.restarts}.")
    head = f"{result.model}: {result.parameters:,} parameters"
    aside = f"plan {result.plan}, on {result.devices} x {result.device_kind}"
    columns = ["", Column("served", right=True), Column("planned", right=True)]
    return Sheet((Title(head, aside), *((Prose("\n".join(said)),) if said else ()), table(columns, rows)))
