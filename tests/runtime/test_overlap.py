"""What XLA's GPU compiler makes of collective matmuls: between the start and the end of a hop it puts a product."""

import json
from pathlib import Path

import pytest

pytest.importorskip("jax_cuda12_plugin", reason="the GPU compiler's wheel is not installed")

from dragonscale.evidence.xla.gpu_target import ENVIRONMENT
from dragonscale.evidence.xla.hlo_text import read_module
from tests.own_process import run_worker
from tests.runtime.test_collective_matmul import LINES

WORKER = Path(__file__).with_name("compile_overlap.py")


def hops_with_products(text: str) -> tuple[int, int, int]:
    """Hops, those with a product under way at the same time, and all products, in the order that the compiler chose."""
    hops = hidden = products = before = 0
    for each in read_module(text).entry.instructions:
        products += each.opcode == "custom-call" and "matmul" in each.text
        if each.opcode == "collective-permute-start":
            before = products
        if each.opcode == "collective-permute-done":
            hops += 1
            hidden += products > before
    return hops, hidden, products


@pytest.mark.slow
def test_every_hop_of_a_ring_has_a_product_beside_it() -> None:
    ended = run_worker([str(WORKER)], "\n".join(LINES), ENVIRONMENT)
    assert ended.code == 0, ended.notes[-2000:]
    texts = dict(zip(LINES, map(json.loads, ended.output.splitlines()), strict=True))
    for line, text in texts.items():
        hops, hidden, products = hops_with_products(text)
        if LINES[line][0] == "all_reduce":
            # Two tiles of four products; the last way round has none left to hide under.
            assert (hops, products) == (9, 8)
            assert hidden >= 4
        else:
            assert (hops, hidden, products) == (3, 3, 4), line
