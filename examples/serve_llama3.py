"""LLaMA-3 70B on TPU v5e as the book serves it (chapter 8: sequences of 8,192 tokens, answers of 512), beside 8B and
405B.

For each format: the smallest slice that holds the weights and twice as many chips, the batch that fits, a decode step
at best (the book's bound, kernel by kernel: matmuls or weights, then caches) and as expected of an engine, and what a
million output tokens cost. The book's own figures for 70B stand beside them.
"""

from dataclasses import dataclass

import numpy

from dragonscale.faces.cli import main
from dragonscale.models import load_model
from dragonscale.models.transformer import count_parameters
from dragonscale.physics.hardware import Slice, dtype_bytes, load_chip
from dragonscale.physics.hardware.slices import possible_shapes
from dragonscale.serving.engine.engine import IDEAL
from dragonscale.serving.iteration.capacity import capacity
from dragonscale.serving.iteration.deployment import deploy
from dragonscale.serving.iteration.phases import decode, iteration_cost
from dragonscale.serving.space.space import smallest_slice
from dragonscale.serving.steady.economics import usd_per_million

CONTEXT, OUTPUT = 8192, 512
V5E = load_chip("v5e")
BOOK = {("bf16", 16): 0.27, ("int8", 8): 0.55, ("int4", 4): 1.11}
"""Requests per second and chip in the book's table for 70B, all with a batch of 43 and steps of 19 ms."""


@dataclass(frozen=True)
class Row:
    """One slice: the batch that fits, milliseconds of a step at best and expected, and requests per second and chip."""

    piece: Slice
    batch: int
    bound_ms: float
    expected_ms: float

    def rate(self, milliseconds: float) -> float:
        return self.batch / (milliseconds / 1e3 * OUTPUT) / self.piece.chips


def judge(name: str, piece: Slice, dtype: str) -> Row | None:
    """The largest batch of full sequences on a slice, weights and cache in one format, matmuls in bf16."""
    model = load_model(name)
    plan = f"weights={dtype},kv={dtype},spread=batch"
    batch = int(numpy.ravel(capacity(deploy(model, piece, plan, IDEAL)).sequences(CONTEXT))[0])
    if batch < 1:
        return None
    bound = iteration_cost(deploy(model, piece, plan, IDEAL), decode(batch, CONTEXT)).roofline
    expected = iteration_cost(deploy(model, piece, plan, "jetstream"), decode(batch, CONTEXT)).expected
    return Row(piece, batch, float(numpy.ravel(bound)[0]) * 1e3, float(numpy.ravel(expected)[0]) * 1e3)


def slices(name: str, dtype: str) -> list[Slice]:
    """The smallest slice that holds the weights, and those with twice the chips."""
    size = count_parameters(load_model(name)).total * dtype_bytes(dtype)
    least = smallest_slice(V5E, size)
    if least is None:
        return []
    wider = [Slice(V5E, shape) for shape in possible_shapes(V5E) if numpy.prod(shape) == 2 * least.chips]
    return [least, *wider[:1]]


def show(name: str) -> None:
    print(f"\n{name}: sequences of {CONTEXT:,} tokens, answers of {OUTPUT}")
    print("format  slice      batch   step at best  expected   requests/s/chip   $/Mtok  the book")
    for dtype in ("bf16", "int8", "int4"):
        for piece in slices(name, dtype):
            row = judge(name, piece, dtype)
            if row is None:
                print(f"{dtype:<7} {piece!s:<10}     0   (the weights leave no room for a sequence)")
                continue
            cost = usd_per_million(row.rate(row.expected_ms) * OUTPUT, 1, V5E.price or 0.0)
            rates = f"{row.rate(row.bound_ms):.2f} to {row.rate(row.expected_ms):.2f}"
            known = BOOK.get((dtype, piece.chips)) if name == "llama3-70b" else None
            book = f"  {known} at best, batch 43, 19ms" if known else ""
            print(
                f"{dtype:<7} {piece!s:<10} {row.batch:>5} {row.bound_ms:>11.1f}ms {row.expected_ms:>8.1f}ms "
                f"{rates:>17} {cost:>8.2f}{book}"
            )


def run() -> int:
    for name in ("llama3-70b", "llama3-8b", "llama3.1-405b"):
        show(name)
    print("\nThe planner's own choice for 70B in int8 with 50 ms a token\n")
    asked = [
        "serve",
        "llama3-70b",
        "--on",
        "v5e",
        "--prompt",
        str(CONTEXT - OUTPUT),
        "--output",
        str(OUTPUT),
        "--tpot",
        "50ms",
    ]
    return main([*asked, "--quantize", "int8", "--top", "3"])


if __name__ == "__main__":
    raise SystemExit(run())
