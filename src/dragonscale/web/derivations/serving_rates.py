"""Rates, dollars, memory and counts of a serving configuration: short formulas over numbers that have derivations of
their own."""

from typing import TYPE_CHECKING, Any

from dragonscale.app.explain.formulas import FormulaLine
from dragonscale.app.serve.config import held_bill
from dragonscale.app.serve.sheet import error_text
from dragonscale.errors import unknown
from dragonscale.physics.units import render
from dragonscale.web.amounts import Amount, amount, count
from dragonscale.web.derivations.ledger_tables import held_table
from dragonscale.web.derivations.pieces import Piece, chip_sources, facts, formulas, row, step

if TYPE_CHECKING:
    from dragonscale.web.derivations.serving import ServeNumbers

RATES = (
    "output_tokens_per_s_per_chip",
    "requests_per_s",
    "cost_usd_per_mtok",
    "replicas",
    "hbm_bytes",
    "hbm_limit_bytes",
    "max_batch",
    "batch",
    "sequence_bytes",
    "kv_bytes_per_token",
    "kv_tokens",
    "chip:peak",
)
_PLANNER = {"text": "Worked out by the planner from the numbers above.", "url": ""}
_PARTS = {
    "weights": "weights_bytes",
    "KV cache": "cache_bytes",
    "workspace": "working_bytes",
    "reserve": "reserve_bytes",
    "free for KV cache": "free_bytes",
    "left by the engine": "left_alone_bytes",
    "unused": "left_alone_bytes",
}


def rate_facts(of: "ServeNumbers", number: str) -> Piece:
    """What it is and what it is put together from."""
    if number.startswith("memory:"):
        return _part(of, number.partition(":")[2])
    title, sentence, shown, rows, docs, sources = _told(of)[number]()
    return facts(
        title,
        sentence,
        shown,
        steps=[step("Put together from", rows, shown)] if rows else [],
        docs=docs,
        error=error_text(of.report, of.one) if number in _BANDED else "",
        sources=sources or [_PLANNER],
        more=number in _FORMULAS,
    )


def rate_formulas(of: "ServeNumbers", number: str) -> Piece:
    """Its formula with the numbers put in."""
    if number.startswith("memory:"):
        return _part_formulas(of, number.partition(":")[2])
    if number not in _FORMULAS:
        return formulas([])
    formula, put_in, value, unit = _numbers(of)[number]
    shown = render(value, unit, 4) if unit != "count" else f"{value:,.4g}"
    return formulas([FormulaLine(number.replace("_", " "), formula, put_in, shown, value, unit)])


_BANDED = ("output_tokens_per_s_per_chip", "requests_per_s", "cost_usd_per_mtok", "replicas")
_FORMULAS = (*_BANDED, "max_batch", "sequence_bytes")


def _numbers(of: "ServeNumbers") -> dict[str, tuple[str, str, float, str]]:
    """Formula, the same with numbers, value, unit."""
    one, state, work = of.one, of.state, of.report.workload
    use, price = one.memory, of.chip.price
    rate, output = float(state.requests), work.output
    found = {
        "requests_per_s": (
            "n_copies*B/(TTFT + (O - 1)*TPOT)",
            f"{one.copies}*{one.batch}/({one.ttft_s:.4g} + ({output} - 1)*{one.tpot_s:.4g})",
            one.requests_per_s * one.copies,
            "count",
        ),
        "output_tokens_per_s_per_chip": (
            "r*O/n_chips",
            f"{rate:.6g}*{output}/{one.chips}",
            one.output_tokens_per_s_per_chip,
            "count",
        ),
        "max_batch": ("floor(HBM_cache/b_sequence)", "", float(one.max_batch), "count"),
    }
    if price is not None and one.cost_usd_per_mtok is not None:
        found["cost_usd_per_mtok"] = (
            "n_chips*price*1e6/(r*O*3600)",
            f"{one.chips}*{price:.6g}*1e6/({rate:.6g}*{output}*3600)",
            one.cost_usd_per_mtok,
            "USD",
        )
    if one.replicas is not None:
        found["replicas"] = (
            "ceiling(rate/r)",
            f"ceiling({work.rate_per_s or 0:.6g}/{rate:.6g})",
            float(one.replicas),
            "count",
        )
    if use is not None:
        room = use.cache_bytes + use.free_bytes
        found["max_batch"] = (
            "floor(M_cache/m_sequence)",
            f"floor({room:.6g}/{use.sequence_bytes:.6g})",
            float(one.max_batch),
            "count",
        )
        length = work.prompt + work.output
        found["sequence_bytes"] = (
            "m_token*(P + O)",
            f"{use.token_bytes:.6g}*({work.prompt} + {work.output})",
            use.sequence_bytes or use.token_bytes * length,
            "bytes",
        )
    return found


def _told(of: "ServeNumbers") -> dict[str, Any]:
    """Title, sentence, number, rows, docs and sources of each."""
    one, work, use, chip = of.one, of.report.workload, of.one.memory, of.chip
    loop = [
        row("requests in flight", count(one.batch, "batch")),
        row("TTFT", amount(one.ttft_s, "s", "ttft_s")),
        row("TPOT", amount(one.tpot_s, "s", "tpot_s")),
        row("output tokens", count(work.output)),
    ]
    every: list[Piece] = (
        [
            row(name, amount(float(getattr(use, key)), "bytes", f"memory:{name}"))
            for name, key in list(_PARTS.items())[:4]
        ]
        if use
        else []
    )
    visible = chip_sources(chip, ["memory.hbm.visible", "memory.hbm.capacity"])
    per_token = use.token_bytes if use is not None else one.kv_bytes_per_token
    serving, capacity = ("serving", "configurations"), ("serving", "why")

    def dollars() -> Amount:
        return amount(one.cost_usd_per_mtok, "USD", "cost_usd_per_mtok", f"${one.cost_usd_per_mtok or 0:,.2f}")

    price = next((row_.text for row_ in of.report.prices if row_.chip == chip.name), "")
    return {
        "requests_per_s": lambda: (
            "Requests per second",
            (
                f"What {one.slice} serves with {one.batch:,} requests in flight on each of {one.copies} replicas "
                "(Little's law)."
            ),
            amount(
                one.requests_per_s * one.copies, "count/s", "requests_per_s", f"{one.requests_per_s * one.copies:,.3g}"
            ),
            [*loop, row("replicas", count(one.copies))],
            serving,
            [],
        ),
        "output_tokens_per_s_per_chip": lambda: (
            "Output tokens per second of a chip",
            "Output tokens of all requests over the chips of a replica.",
            count(one.output_tokens_per_s_per_chip, "output_tokens_per_s_per_chip"),
            [*loop, row("chips of a replica", count(one.chips))],
            serving,
            [],
        ),
        "cost_usd_per_mtok": lambda: (
            "Cost of a million output tokens",
            "What the chips of a replica cost while they make a million output tokens, prompts included.",
            dollars(),
            [
                row("chips", count(one.chips)),
                row("an hour of a chip", amount(chip.price, "USD/h"), price),
                row(
                    "output tokens/s per chip", count(one.output_tokens_per_s_per_chip, "output_tokens_per_s_per_chip")
                ),
            ],
            serving,
            chip_sources(chip, ["price"]),
        ),
        "replicas": lambda: (
            "Replicas",
            "Replicas that serve the rate that was asked for and meet the targets.",
            count(one.replicas or 0, "replicas"),
            [
                row("rate", amount(work.rate_per_s, "count/s")),
                row("a replica serves", amount(one.requests_per_s, "count/s", "", f"{one.requests_per_s:,.3g}/s")),
            ],
            serving,
            [],
        ),
        "hbm_bytes": lambda: (
            "Memory",
            f"What a chip holds with {one.batch:,} sequences of full length.",
            amount(one.hbm_bytes, "bytes", "hbm_bytes"),
            every,
            capacity,
            visible,
        ),
        "hbm_limit_bytes": lambda: (
            "Memory of a chip",
            f"What a program finds of the {chip.title}'s HBM.",
            amount(one.hbm_limit_bytes, "bytes", "hbm_limit_bytes"),
            [row("HBM of the chip", amount(chip.memory["hbm"].capacity, "bytes"))],
            ("chips", ""),
            visible,
        ),
        "max_batch": lambda: (
            "Sequences that fit",
            "Sequences of full length that the cache of a replica has room for, or that the engine takes at once.",
            count(one.max_batch, "max_batch"),
            [
                row(
                    "room for the cache on a chip", amount((use.cache_bytes + use.free_bytes) if use else None, "bytes")
                ),
                row("a sequence takes", amount(use.sequence_bytes if use else None, "bytes", "sequence_bytes")),
            ],
            capacity,
            visible,
        ),
        "batch": lambda: (
            "Requests in flight",
            "Sequences that decode at once: the batch that was asked for, or the best that meets the targets and fits.",
            count(one.batch, "batch"),
            [row("fit at most", count(one.max_batch, "max_batch"))],
            serving,
            [],
        ),
        "sequence_bytes": lambda: (
            "KV cache of a sequence",
            "Bytes that the cache of one sequence of full length takes on a chip, in whole pages.",
            amount(use.sequence_bytes if use else None, "bytes", "sequence_bytes"),
            [
                row("a token", amount(per_token, "bytes", "kv_bytes_per_token")),
                row("tokens", count(work.prompt + work.output)),
            ],
            capacity,
            [],
        ),
        "kv_bytes_per_token": lambda: (
            "KV cache of a token",
            (
                "Bytes of keys and values (or what the model keeps instead) of one token on a chip, in "
                f"{one.dtypes.get('kv', '')}."
            ),
            amount(per_token, "bytes", "kv_bytes_per_token"),
            [row("of all chips of a replica", amount(one.kv_bytes_per_token, "bytes"))],
            capacity,
            [{"text": "From the shapes of the model's config and the plan's splits.", "url": ""}],
        ),
        "kv_tokens": lambda: (
            "Room for tokens",
            "Tokens that the caches of a replica have room for.",
            count(use.tokens if use else 0, "kv_tokens"),
            [row("a token on a chip", amount(per_token, "bytes", "kv_bytes_per_token"))],
            capacity,
            [],
        ),
        "chip:peak": lambda: (
            "Peak",
            f"The peak of the {chip.title}'s matrix unit.",
            amount(chip.peak("bf16"), "FLOP/s", "chip:peak"),
            [row(name, amount(rate, "FLOP/s")) for name, rate in chip.matrix.items()],
            ("chips", ""),
            chip_sources(chip, [f"matrix.{name}" for name in chip.matrix]),
        ),
    }


def _part(of: "ServeNumbers", name: str) -> Piece:
    use = of.one.memory
    if use is None or name not in _PARTS:
        raise unknown("part of memory called", name, _PARTS)
    size = float(getattr(use, _PARTS[name]))
    number = amount(size, "bytes", f"memory:{name}")
    lines = _held_lines(of, name)
    told = {
        "KV cache": f"The caches of {of.one.batch:,} sequences of full length.",
        "reserve": "What the engine and the runtime keep for themselves.",
        "free for KV cache": "What the engine sets aside for caches and this batch does not fill.",
        "left by the engine": "What the engine does not touch of the chip's memory (its memory fraction).",
    }
    sentence = told.get(name, f"Bytes of {name} on a chip: {len(lines)} tensors.")
    source = {"text": f"The engine {of.one.engine}'s settings, and the model's shapes under the plan.", "url": ""}
    return facts(
        name.capitalize(),
        sentence,
        number,
        steps=[held_table(lines, number)] if lines else [],
        docs=("serving", "why"),
        sources=[source],
    )


def _part_formulas(of: "ServeNumbers", name: str) -> Piece:
    if of.report.asked.ask.output <= 1:
        return formulas([])
    _, found = of.phases("decode")[0]
    held = {part: size for part, size in found.ledger.memory.items() if part == name}
    lines = [found.say(f"{name}, this decode step's", size, "bytes") for size in held.values()]
    from dragonscale.web.derivations.letters import letters_of

    work = {"B": "sequences that decode at once", "S": "tokens that a sequence holds"}
    return formulas(lines, letters_of(found.letters.values, of.chip, of.report.model, work))


def _held_lines(of: "ServeNumbers", part: str) -> list[Any]:
    """The tensors of a part of memory."""
    return [line for line in held_bill(of.report.asked, of.one, of.deployment).held if line.part == part]
