"""Weights in the host's memory: what they take of the GPU's, and how long a token takes."""

import pytest

from dragonscale.physics.numbers import first_number
from dragonscale.serving.iteration.deployment import deploy
from dragonscale.serving.iteration.phases import decode, iteration_cost
from dragonscale.serving.iteration.resident_memory import bytes_of, weight_lines

PLAN = "tensor=1,weights=q4_k_m,compute=int8,kv=fp16"


def _token_s(settings: str) -> float:
    deployment = deploy("qwen3-30b-a3b", "rtx3090:1", PLAN, f"llama.cpp{settings}")
    return first_number(iteration_cost(deployment, decode(1.0, 1024.0)).expected)


def _gpu_bytes(settings: str) -> float:
    deployment = deploy("qwen3-30b-a3b", "rtx3090:1", PLAN, f"llama.cpp{settings}")
    return float(bytes_of(weight_lines(deployment)))


def test_experts_in_the_host_leave_the_gpu() -> None:
    whole, half = _gpu_bytes(""), _gpu_bytes(",offload.expert_layers=24")
    experts = 48 * 128 * 3 * 2048 * 768 * (4.5 + 0.5 * (6.5625 - 4.5) / 3) / 8  # half of Wd in q6_k
    assert whole - half == pytest.approx(experts / 2, rel=0.01)


def test_a_token_waits_for_the_bytes_of_its_experts_in_the_host() -> None:
    settings = ",offload.expert_layers=48,offload.switch_s=0"
    slower = _token_s(settings) - _token_s(f"{settings},offload.bytes_per_s=1.6e11")
    active = 48 * 8 * 3 * 2048 * 768 * (4.5 + 0.5 * (6.5625 - 4.5) / 3) / 8
    assert slower == pytest.approx(active / 0.42 * (1 / 8e10 - 1 / 1.6e11), rel=0.04)


def test_a_slower_host_makes_slower_tokens() -> None:
    times = [_token_s(f",offload.expert_layers=24,offload.bytes_per_s={rate}") for rate in ("4e10", "8e10", "1.6e11")]
    assert times == sorted(times, reverse=True)
    assert times[-1] > _token_s("")
