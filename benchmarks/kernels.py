"""How fast kernels are costed: a million distinct shapes in one call, on one core, against one call per shape."""

import time
from collections.abc import Callable
from typing import Any

import numpy

from dragonscale.physics.kernels import (
    attention_seconds,
    decode_attention_seconds,
    grouped_matmul_seconds,
    kernel_profile_for,
    matmul_seconds,
    memory_seconds,
)

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
    m, n, k, tokens = (random.integers(1, 65536, COUNT) for _ in range(4))
    batch, keys = random.integers(1, 512, COUNT), random.integers(1, 32768, COUNT)
    for name in ("h100", "v5p"):
        profile = kernel_profile_for(name)
        work: dict[str, Callable[[], Any]] = {
            "matmuls": lambda p=profile: matmul_seconds(m, n, k, "bf16", p),
            "attentions": lambda p=profile: attention_seconds(batch, keys, keys, 32, 8, 128, "bf16", p),
            "decoding attentions": lambda p=profile: decode_attention_seconds(batch, keys, 32, 8, 128, "bf16", p),
            "mixtures": lambda p=profile: grouped_matmul_seconds(tokens, 4096, 1536, 8, 128, "bf16", p),
            "streams": lambda p=profile: memory_seconds(m, p),
        }
        for what, function in work.items():
            taken = best_of(function, 3)
            print(f"{name}: {COUNT:,} {what} in {taken:.3f} CPU-s ({COUNT / taken / 1e6:.1f} million per second)")
        single = best_of(lambda p=profile: [matmul_seconds(i, 4096, 4096, "bf16", p) for i in range(1, 1001)], 3) / 1000
        arrays = best_of(work["matmuls"], 3) / COUNT
        print(
            f"{name}: one matmul at a time takes {single * 1e6:.1f} us, {single / arrays:,.0f}x as long as one of many"
        )


if __name__ == "__main__":
    main()
