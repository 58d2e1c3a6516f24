"""A serving configuration as panels: the answer in a sentence with its bands, where a decode step and a prompt go,
memory.

The panels of its shape (mesh, roofline, timeline) and of what else could be (frontier, batches) are in modules of their
own.
"""

from typing import Any

from dragonscale.app.charts.roles import memory_parts, time_parts
from dragonscale.app.serve.config import bills_of, deployment_of, held_bill
from dragonscale.app.serve.records import ConfigReport, MemoryUse, ServeReport
from dragonscale.physics.units import render
from dragonscale.plan.ledger import Ledger
from dragonscale.web.amounts import amount, count
from dragonscale.web.page_request import PageRequest
from dragonscale.web.views.ledgers import line_rows
from dragonscale.web.views.serve_answer import answer_panel
from dragonscale.web.views.serve_curves import batches_panel, frontier_panel
from dragonscale.web.views.serve_shape import mesh_panel, roofline_panel, timeline_panel

AGREES = 1e-3
"""Lines are shown under a part of memory where they add up to it as nearly as this."""


def time_panel(asked: PageRequest) -> dict[str, Any]:
    """Two bars: a decode step and a prompt that runs alone, exposed and hidden seconds by term, each with its lines."""
    report: ServeReport = asked.record
    if not report.configs:
        return {"bars": []}
    one, bills = report.configs[0], bills_of(report)
    bars = [_step_bar(report, one, bills["decode"])] if "decode" in bills else []
    return {"bars": [*bars, _prompt_bar(report, one, bills["prefill"])]}


def _step_bar(report: ServeReport, one: ConfigReport, ledger: Ledger) -> dict[str, Any]:
    work = report.workload
    context = f"{work.prompt + work.output // 2:,} tokens of context"
    return {
        "name": "decode",
        "title": "A decode step",
        "about": f"{one.batch:,} sequences of {context}, on each chip of a replica{_beside_prompts(one)}",
        "total": amount(one.decode_step_s, "s", "decode_step_s"),
        "lower": amount(one.lower_s, "s", "lower_s"),
        "roofline": amount(one.roofline_s, "s", "roofline_s"),
        "parts": _time_rows(ledger, "term"),
    }


def _beside_prompts(one: ConfigReport) -> str:
    """Why a token takes longer than a step: prompts of other requests are read between the steps."""
    if one.drafts or one.tpot_s <= 1.005 * one.decode_step_s:
        return ""
    taken = 1 - one.decode_step_s / one.tpot_s
    return f"; TPOT is {render(one.tpot_s, 's')} because prompts of other requests take {taken:.0%} of the time"


def _prompt_bar(report: ServeReport, one: ConfigReport, ledger: Ledger) -> dict[str, Any]:
    chunks = f", in {one.prefill_chunks} chunks" if one.prefill_chunks > 1 else ""
    new = max(1, round(report.workload.prompt * (1 - report.workload.cached)))
    alone = sum(row.expected_s for row in one.prefill_terms)
    return {
        "name": "prefill",
        "title": "A prompt",
        "about": f"{new:,} tokens with no other request running{chunks}",
        "total": amount(alone, "s", "prefill_alone_s"),
        "beside": amount(one.prefill_s, "s", "prefill_s"),
        "lower": amount(sum(row.roofline_s for row in one.prefill_terms), "s", ""),
        "parts": _time_rows(ledger, "prefill"),
    }


def _time_rows(ledger: Ledger, why: str) -> list[dict[str, Any]]:
    shown, expected, bound = (ledger.by("term", name) for name in ("exposed_s", "expected_s", "bound_s"))
    rows = [(name, float(shown[name]), max(float(expected[name] - shown[name]), 0.0)) for name in shown]
    lines = line_rows(ledger)
    return [
        {
            "name": part.name,
            "role": part.role,
            "shown": amount(part.value, "s", f"{why}:{part.name}"),
            "hidden": amount(part.hidden, "s", f"{why}:{part.name}"),
            "bound": amount(float(bound[part.name]), "s", f"{why}:{part.name}"),
            "lines": lines.get(part.name, []),
        }
        for part in time_parts(rows)
    ]


def memory_panel(asked: PageRequest) -> dict[str, Any]:
    """Bytes of a chip by part against what it has, and how many sequences fit."""
    report: ServeReport = asked.record
    if not report.configs or report.configs[0].memory is None:
        return {"parts": []}
    one, read = report.configs[0], report.asked
    use, length = report.configs[0].memory, report.workload.prompt + report.workload.output
    lines = _held_rows(held_bill(read, one, deployment_of(read, one)), _held_parts(use))
    free = [("free for KV cache", use.free_bytes), ("left by the engine", use.left_alone_bytes)]
    return {
        "used": amount(one.hbm_bytes, "bytes", "hbm_bytes"),
        "limit": amount(one.hbm_limit_bytes, "bytes", "hbm_limit_bytes"),
        "parts": [
            {
                "name": part.name,
                "role": part.role,
                "shown": amount(part.value, "bytes", f"memory:{part.name}"),
                "lines": lines.get(part.name, []),
            }
            for part in memory_parts(_held_parts(use).items())
        ],
        "rest": [{"name": name, "shown": amount(size, "bytes", f"memory:{name}")} for name, size in free if size > 0],
        "fits": _fits(one, use, length),
    }


def _held_parts(use: MemoryUse) -> dict[str, float]:
    return {
        "weights": use.weights_bytes,
        "KV cache": use.cache_bytes,
        "workspace": use.working_bytes,
        "reserve": use.reserve_bytes,
    }


def _held_rows(ledger: Ledger, parts: dict[str, float]) -> dict[str, list[dict[str, Any]]]:
    """Tensors by part, the largest first; a part that they do not add up to (a cache whose prefix is
    shared) has none."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, size in parts.items():
        own = sorted((line for line in ledger.held if line.part == name), key=lambda line: -float(line.bytes))
        if size > 0 and abs(sum(float(line.bytes) for line in own) / size - 1) < AGREES:
            found[name] = [
                {"what": line.what, "section": line.section, "bytes": amount(float(line.bytes), "bytes")}
                for line in own
                if line.bytes
            ]
    return found


def _fits(one: ConfigReport, use: MemoryUse, length: int) -> list[dict[str, Any]]:
    """How much room the cache has, as figures."""
    pages = f"{use.pages:,} pages of {use.page_tokens} tokens" if use.page_tokens > 1 else f"{use.tokens:,.0f} tokens"
    return [
        {
            "label": "sequences that fit",
            "number": count(one.max_batch, "max_batch"),
            "about": f"of {length:,} tokens each",
        },
        {
            "label": "in flight",
            "number": count(one.batch, "batch"),
            "about": f"{one.batch / max(one.max_batch, 1):.0%} of them",
        },
        {
            "label": "KV cache of a sequence",
            "number": amount(use.sequence_bytes, "bytes", "sequence_bytes"),
            "about": "on a chip",
        },
        {
            "label": "KV cache of a token",
            "number": amount(use.token_bytes, "bytes", "kv_bytes_per_token"),
            "about": "on a chip",
        },
        {
            "label": "room",
            "number": count(use.tokens, "kv_tokens"),
            "about": f"tokens of a replica: {pages}; {render(use.free_bytes, 'bytes')} a chip free",
        },
    ]


PANELS = {
    "answer": answer_panel,
    "time": time_panel,
    "memory": memory_panel,
    "roofline": roofline_panel,
    "mesh": mesh_panel,
    "timeline": timeline_panel,
    "frontier": frontier_panel,
    "batches": batches_panel,
}
