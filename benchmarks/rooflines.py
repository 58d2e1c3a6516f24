"""How fast rooflines and collectives are costed, as ratios against NumPy's own limit measured in the same run.

The limit is the time NumPy needs for the arithmetic alone, written by hand for this one formula. What the general
machinery costs on top is the ratio; a plain Python loop over the same function shows what arrays buy.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy

from dragonscale.physics.collectives import Ring, Rings, collective_time
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.rooflines import einsum_cost, rates_of, roofline

COUNT = 1_000_000


def best_of(function: Callable[[], Any], times: int = 5) -> float:
    """The shortest of several runs, in CPU seconds."""
    taken = []
    for _ in range(times):
        start = time.process_time()
        function()
        taken.append(time.process_time() - start)
    return min(taken)


def main() -> None:
    random = numpy.random.default_rng(0)
    sizes = {name: random.integers(1, 65536, COUNT) for name in "BDF"}
    line, chip = parse_einsum("bf16[B,D] @ bf16[D,F]"), load_chip("v5e")

    def by_dragonscale() -> Any:
        return roofline(einsum_cost(line, sizes), rates_of(chip)).lower

    def by_hand() -> Any:
        b, d, f = (sizes[name].astype(float) for name in "BDF")
        return numpy.maximum(2 * b * d * f / 197e12, 2 * (b * d + d * f + b * f) / 820e9)

    def one_by_one(count: int) -> None:
        for place in range(count):
            one = {name: int(values[place]) for name, values in sizes.items()}
            roofline(einsum_cost(line, one), rates_of(chip))

    assert numpy.allclose(by_dragonscale(), by_hand())
    arrays, hand, single = best_of(by_dragonscale), best_of(by_hand), best_of(lambda: one_by_one(2000), 3) / 2000
    print(
        f"{COUNT:,} rooflines of distinct shapes in one call: {arrays:.3f} CPU-s ({COUNT / arrays / 1e6:.1f} "
        "million per second)"
    )
    print(f"  against the same arithmetic written by hand in NumPy: {arrays / hand:.2f}x its time")
    print(f"  against one call per shape: {single * COUNT / arrays:,.0f}x faster")

    volumes = random.uniform(1e3, 1e10, COUNT)
    group = Rings((Ring(sizes["B"] % 15 + 2), Ring(16)), 45e9, 1e-6)
    gathers = best_of(lambda: collective_time("all_gather", volumes, group).lower)
    limit = best_of(lambda: numpy.maximum(volumes / 180e9, (sizes["B"] % 15 + 18) / 2 * 1e-6))
    print(f"{COUNT:,} all-gathers over two axes: {gathers:.3f} CPU-s, {gathers / limit:.2f}x the arithmetic alone")


if __name__ == "__main__":
    main()
