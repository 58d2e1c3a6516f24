"""Kernels held against counts: bytes that must be read, matrices of an expert, waves of tiles."""

from dataclasses import replace

import pytest

from dragonscale.physics.hardware import load_chip
from dragonscale.physics.kernels.decode import decode_attention_seconds
from dragonscale.physics.kernels.grouped import grouped_matmul_seconds
from dragonscale.physics.kernels.matmul import tiles_seconds
from dragonscale.physics.kernels.profile_file import kernel_profile_for

H100 = kernel_profile_for(load_chip("h100"))


def test_decoding_reads_keys_and_values_once() -> None:
    read = 2 * 2 * 256 * 8192 * 8 * 128  # of 256 sequences with 8 heads of 128, in bf16
    seconds = decode_attention_seconds(256, 8192, 32, 8, 128, "bf16", H100)
    assert 1 <= seconds / (read / H100.bandwidth) < 1.5


def test_a_gated_expert_has_three_matrices() -> None:
    """Few tokens: their weights are read; many: their FLOPs are done. Either way three to two."""
    for tokens in (64, 65536):
        gated, plain = (
            grouped_matmul_seconds(tokens, 4096, 1536, 8, 128, "bf16", H100, gated=gated) for gated in (True, False)
        )
        assert gated / plain == pytest.approx(1.5, rel=0.15)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
def test_tiles_come_in_waves(share: float) -> None:
    """Tiles of 128 x 64 handed to ten cores, whole waves for a `share` of the time."""
    table = replace(
        H100.matmul.of("bf16"),
        tiles=((128, 64),),
        quantum=share,
        join=0.0,
        operands=0.0,
        prologue=0.0,
        pad=1,
        pad_rows=0,
    )
    for m, n in ((128, 640), (129, 640), (1280, 64), (1281, 64), (1000, 1000)):
        tiles = len(range(0, m, 128)) * len(range(0, n, 64))
        whole, part = len(range(0, tiles, 10)), tiles / 10
        seconds = tiles_seconds(float(m), float(n), 512.0, 1.0, table, 1e-9, 10.0)
        assert seconds == pytest.approx((share * whole + (1 - share) * part) * 128 * 64 * 512 * 1e-9)
