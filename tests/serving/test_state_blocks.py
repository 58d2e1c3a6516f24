"""Blocks of recurrent states, against what vLLM printed."""

import pytest

from dragonscale.serving.iteration.deployment import deploy
from dragonscale.serving.iteration.state_blocks import state_blocks

GIB = 2**30


def test_blocks_of_a_start_that_was_logged():
    """vllm-project/vllm#49064: 48 Gated DeltaNet and 16 attention layers, TP 2: 161 blocks in 3.86 GiB; no more than
    123,872 tokens."""
    blocks = state_blocks(deploy("qwen3.5-27b", "h100:2", "tensor=2", "vllm"), 3.86 * GIB)
    assert blocks is not None
    assert blocks.count == pytest.approx(161, abs=1)
    assert blocks.longest_request == pytest.approx(123_872, rel=0.01)


def test_no_blocks_without_recurrent_layers():
    assert state_blocks(deploy("llama3-8b", "h100:1", "tensor=1", "vllm"), GIB) is None
