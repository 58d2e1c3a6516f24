"""Tokens on their way to experts: what is sent, how often, and what engines make of it."""

from dataclasses import replace

import numpy
import pytest

from dragonscale.physics.collectives.group import Switches
from dragonscale.physics.hardware import load_chip
from dragonscale.serving.engine.engine import adjust, load_engine
from dragonscale.serving.iteration.deployment import deploy
from dragonscale.serving.iteration.phases import decode, iteration_cost, prefill
from dragonscale.training.cost.move_times import group_nodes

PLAN = "data=32,tensor=1,expert=32,weights=fp8,compute=fp8_block"


def volume(engine, iteration):
    cost = iteration_cost(deploy("deepseek-v3", "h100:32", PLAN, engine), iteration)
    return float(numpy.sum(cost.wires["data",].volume))


def changed(**settings):
    return adjust(load_engine("sglang-ep"), experts=settings)


def test_places_are_nodes_or_chips_of_one():
    levels = load_chip("h100").network.levels
    assert group_nodes(Switches(32, levels)) == 4
    assert group_nodes(Switches(8, levels)) == 8
    assert group_nodes(Switches(4, levels, stride=8)) == 4


def test_fp8_halves_what_leaves():
    step = decode(32 * 64, 2000)
    wide, narrow = (volume(changed(dispatch_bytes=size), step) for size in (2.0, 1.0))
    assert narrow == pytest.approx(0.75 * wide)  # results come back in bf16


def test_a_token_goes_once_to_each_node_in_prefill():
    plain, once = (volume(changed(dedup=kept), prefill(2048, 32)) for kept in (False, True))
    assert once / plain == pytest.approx(4 * (1 - (3 / 4) ** 8) / 8)
    assert volume(changed(dedup=True), decode(2048, 2000)) == volume(changed(dedup=False), decode(2048, 2000))


def test_each_data_place_has_its_own_host():
    one = deploy("deepseek-v3", "h100:32", PLAN, "sglang-ep")
    cost = iteration_cost(one, decode(32 * 64, 2000))
    engine = one.engine
    assert float(cost.host[0]) == pytest.approx(engine.host.step_s + 64 * engine.host.sequence_s)


def test_heads_that_do_not_share_read_the_cache_again():
    def seconds(heads, name="llama3-8b"):
        engine = adjust(load_engine("generic"), kernels={"shared_heads": heads})
        return float(iteration_cost(deploy(name, "h100:1", "tensor=1", engine), decode(64, 4096)).expected[0])

    assert seconds(()) == seconds((4,)) == seconds((2, 4))
    assert 1.5 * seconds(()) < seconds((8,)) < 4 * seconds(())


def test_plain_experts_scale_with_their_products():
    plain, usual = (
        replace(deploy("mixtral-8x7b", "h200:2", "tensor=2,weights=fp8,compute=fp8"), launched_engine=engine)
        for engine in (load_engine("trtllm-0"), adjust(load_engine("trtllm-0"), experts={"kernels": ""}))
    )
    small, large = (iteration_cost(plain, decode(batch, 1000)).terms["experts"].expected[0] for batch in (512, 4096))
    assert 3 < large / small < 9
    assert large < iteration_cost(usual, decode(4096, 1000)).terms["experts"].expected[0]
    lower = iteration_cost(plain, decode(4096, 1000)).terms["experts"]
    assert lower.expected[0] >= max(lower.compute[0], lower.memory[0])
