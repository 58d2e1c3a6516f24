"""Solutions of the chapter on serving LLaMA-3."""

import math
from typing import Any

import numpy

from dragonscale.course.closed_forms.chip_parts import flops_per_usd
from dragonscale.course.closed_forms.decode_floor import (
    DecodeTimes,
    batch_within,
    cache_over_flops,
    critical_batch,
    decode_times,
    plateau,
    throughput,
)
from dragonscale.course.closed_forms.serving_fleet import (
    evicted_per_step,
    finished_per_step,
    free_bytes,
    largest_batch,
    requests_per_second,
)
from dragonscale.course.closed_forms.serving_splits import decode_degree, prefill_degree
from dragonscale.models import count_parameters, kv_bytes_per_token, load_model
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.notation import parse_array
from dragonscale.physics.numbers import floor, minimum
from dragonscale.physics.rooflines import array_bytes, rates_of
from dragonscale.physics.rooflines.model_flops import model_flops
from dragonscale.serving.space.space import smallest_slice
from dragonscale.serving.steady.economics import usd_per_million
from tests.book.casebook import NOT_COMPUTED, solves
from tests.book.solve_inference_rooflines import rates, v5e

MODEL = load_model("llama3-70b")
KV = kv_bytes_per_token(MODEL, "int8")
FORMATS = ("bf16", "int8", "int4")
NOT_COMPUTED["applied-inference.q4_build"] = "The stages of a programming exercise are not the result of a calculation."


def check(given: dict[str, Any], name: str = "llama3-70b") -> None:
    """The model in the catalogue is the one the case describes, to the book's rounding of its parameters."""
    model = load_model(name)
    dims = model.program().sections[1].dims
    known = {"L": model.n_layers, "F": dims["f"], "K": dims["k"], "H": dims["h"]}
    assert all(given[letter] == known[letter] for letter in known if letter in given)
    assert "P" not in given or math.isclose(count_parameters(model).total, given["P"], rel_tol=0.01)
    if isinstance(given.get("kv"), int):
        assert kv_bytes_per_token(model, "int8") == given["kv"]


def power_of_two(ways: float) -> int:
    """The largest power of two that is no more."""
    return 2 ** int(math.log2(ways))


# Which chip.


@solves("applied-inference.flops_per_dollar")
def flops_for_a_dollar(given: dict[str, Any]) -> dict[str, Any]:
    chips = {name: load_chip(name.lower()).reading("book") for name in given["C"]}
    assert {name: chip.peak("bf16") for name, chip in chips.items()} == given["C"]
    assert {name: chip.price for name, chip in chips.items()} == given["usd_per_hour"]
    value = {name: flops_per_usd(chip) for name, chip in chips.items()}
    return {"flops_per_usd": value, "best": max(value, key=lambda name: value[name])}


@solves("applied-inference.kv_per_token")
def cache_of_a_token(given: dict[str, Any]) -> dict[str, Any]:
    check(given)
    return {"bytes": KV}


# 32 sequences of 8k on a 4x2.


@solves("applied-inference.bs32_latency_4x2")
def small_batch(given: dict[str, Any]) -> dict[str, Any]:
    params = 70e9
    cache = (given["total"] - params) / given["B"]
    assert math.isclose(cache, KV * 8192, rel_tol=0.03)
    step = decode_times(given["B"], cache, params, given["chips"], rates(given), weights="int8").lower
    return {
        "step": step,
        "tput": throughput(given["B"], step),
        "tput_per_chip": throughput(given["B"], step, given["chips"]),
    }


@solves("applied-inference.bs32_memory_bound")
def waits_for_memory(given: dict[str, Any]) -> dict[str, Any]:
    step = decode_times(given["B"], KV * 8192, 70e9, 8, rates(given), weights="int8")
    assert math.isclose(critical_batch(rates(given), "int8"), given["B_crit"], rel_tol=0.01)
    return {"memory_bound": step.weights > step.math}


def most_ways(given: dict[str, Any]) -> float:
    """Ways of tensor parallelism that the two axes of a v5e carry while compute binds."""
    check(given)
    return prefill_degree(given["F"], v5e(given), axes=given.get("M_Y", 2))


@solves("applied-inference.bs32_ici_check")
def wires_of_small_slices(given: dict[str, Any]) -> dict[str, Any]:
    most = most_ways(given)
    return {"Y_max": most, "ok_8": most > 8, "ok_16": most > 16}


@solves("applied-inference.cost_per_token_bs32")
def dollars(given: dict[str, Any]) -> dict[str, Any]:
    chip = v5e(given)
    assert chip.price == given["usd_per_hour"]
    return {"usd_per_Mtok": usd_per_million(given["tput_per_chip"], 1, chip.price)}


# Throughput.


@solves("applied-inference.critical_batches")
def critical(given: dict[str, Any]) -> dict[str, Any]:
    chip = rates(given)
    return {
        "bf16": critical_batch(chip),
        "int8w_bf16": critical_batch(chip, "int8"),
        "int8": critical_batch(chip, "int8", "int8"),
    }


@solves("applied-inference.min_topology_table")
def smallest_slices(given: dict[str, Any]) -> dict[str, Any]:
    check(given)
    assert {name: dtype_bytes(name) for name in FORMATS} == given["bytes"]
    assert given["kv_elems"] == KV
    chip = v5e(given)
    weights = {name: given["P"] * dtype_bytes(name) for name in FORMATS}
    slices = {name: smallest_slice(chip, weights[name]) for name in FORMATS}
    memory = {name: piece.hbm for name, piece in slices.items() if piece is not None}
    cache = {name: kv_bytes_per_token(MODEL, name) for name in FORMATS}
    return {
        "param_gb": {name: weights[name] / 1e9 for name in FORMATS},
        "kv_per_token": cache,
        "min_chips": {name: weights[name] / chip.hbm.capacity for name in FORMATS},
        "slice_chips": {name: piece.chips for name, piece in slices.items() if piece is not None},
        "free_gb": {name: free_bytes(memory[name], weights[name]) / 1e9 for name in FORMATS},
        "caches": {name: largest_batch(memory[name], weights[name], cache[name] * given["S"]) for name in FORMATS},
    }


@solves("applied-inference.qps_table")
def requests(given: dict[str, Any]) -> dict[str, Any]:
    total = requests_per_second(given["B"], given["step"], given["steps"])
    return {"total_qps": total, "per_chip": {name: total / chips for name, chips in given["N"].items()}}


@solves("applied-inference.double_topology")
def doubled(given: dict[str, Any]) -> dict[str, Any]:
    check({"P": given["P"]})
    chip, chips = v5e(given), given["N"]
    weights = {name: given["P"] * dtype_bytes(name) for name in FORMATS}
    batch = {
        name: largest_batch(chips[name] * chip.hbm.capacity, weights[name], given["kv"][name] * given["S"])
        for name in FORMATS
    }
    rate = {name: requests_per_second(batch[name], given["step"], given["steps"]) for name in FORMATS}
    return {
        "free_gb": {name: free_bytes(chips[name] * chip.hbm.capacity, weights[name]) / 1e9 for name in FORMATS},
        "batch": batch,
        "total_qps": rate["bf16"],
        "per_chip": {name: rate[name] / chips[name] for name in FORMATS},
    }


@solves("applied-inference.topology_takeaway")
def gain_of_doubling(given: dict[str, Any]) -> dict[str, Any]:
    """Caches and rates of both slices, with the book's 324 kB for a token and 19 ms for a step."""
    chip, weights = v5e({}), 70e9 * dtype_bytes("bf16")
    rate = {}
    for chips in (16, 32):
        batch = largest_batch(chips * chip.hbm.capacity, weights, 324e3 * 8192)
        rate[chips] = requests_per_second(batch, 0.019, 512) / chips
    assert math.isclose(rate[16], given["before"], rel_tol=0.01)
    assert math.isclose(rate[32], given["after"], rel_tol=0.01)
    return {"gain": rate[32] / rate[16]}


# Sharding.


@solves("applied-inference.tp_limit_4x8")
def wires_of_a_4x8(given: dict[str, Any]) -> dict[str, Any]:
    most = most_ways(given)
    return {"Y_max": most, "ok_4x8": most >= given["Y"], "largest_pow2": power_of_two(most)}


@solves("applied-inference.quantized_tp")
def wires_of_quantized_slices(given: dict[str, Any]) -> dict[str, Any]:
    """Twice the smallest slices that hold the weights."""
    chips = {}
    for dtype in ("int8", "int4"):
        piece = smallest_slice(v5e(given), 70e9 * dtype_bytes(dtype))
        assert piece is not None
        chips[dtype] = 2 * piece.chips
    assert chips == {"int8": 16, "int4": 8}
    return {f"{dtype}_ok": count < most_ways(given) for dtype, count in chips.items()}


@solves("applied-inference.tp_limit_small_batch")
def small_batch_limit(given: dict[str, Any]) -> dict[str, Any]:
    check({"F": given["F"]})
    return {"Y": decode_degree(given["F"], given["B"], v5e(given))}


@solves("applied-inference.useful_tp_range")
def useful_ways(_: dict[str, Any]) -> dict[str, Any]:
    """The three LLaMA-3 models on the two axes of a v5e, in powers of two."""
    widths = [load_model(name).program().sections[1].dims["f"] for name in ("llama3-8b", "llama3-70b", "llama3.1-405b")]
    ways = [power_of_two(prefill_degree(width, v5e({}), axes=2)) for width in widths]
    return {"lo": min(ways), "hi": max(ways)}


@solves("applied-inference.flops_bound_floor")
def flops_floor(given: dict[str, Any]) -> dict[str, Any]:
    check({"P": given["P"]})
    return {"t": decode_times(given["B"], 0, given["P"], given["N"], rates(given), weights="int8").linear}


@solves("applied-inference.eviction_rate")
def evictions(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "seqs_per_step": finished_per_step(given["B"], given["G"]),
        "tokens_per_step": evicted_per_step(given["B"], given["P"], given["G"]),
    }


# Latency against throughput: int8 weights, products in bf16, a v5e 4x4.


def step_of(given: dict[str, Any], batch: Any, context: Any) -> DecodeTimes:
    """A decode step of the figures."""
    check({name: given[name] for name in ("P", "kv")})
    return decode_times(batch, given["kv"] * context, given["P"], given["chips"], rates(given), weights="int8")


@solves("applied-inference.pareto_min_latency")
def least_latency(given: dict[str, Any]) -> dict[str, Any]:
    return {"ms": step_of(given, given["B"], given["S"]).lower * 1e3}


@solves("applied-inference.pareto_max_latency")
def most_latency(given: dict[str, Any]) -> dict[str, Any]:
    batch, context = (numpy.array(given[name], float) for name in "BS")
    return {"ms": list(step_of(given, batch, context).lower * 1e3)}


@solves("applied-inference.pareto_capacity")
def most_sequences(given: dict[str, Any]) -> dict[str, Any]:
    check({name: given[name] for name in ("P", "kv")})
    memory = given["chips"] * v5e(given).hbm.capacity
    return {"max_batch": list(largest_batch(memory, given["P"], given["kv"] * numpy.array(given["S"])))}


@solves("applied-inference.pareto_plateau")
def flat_part(given: dict[str, Any]) -> dict[str, Any]:
    step = step_of(given, given["B"], given["S"])
    asymptote = plateau(given["kv"] * given["S"], given["P"], rates(given))
    return {"at_120": throughput(given["B"], step.lower, given["chips"]) / 1e3, "asymptote": asymptote / 1e3}


@solves("applied-inference.pareto_kv_vs_flops")
def long_context(given: dict[str, Any]) -> dict[str, Any]:
    context = cache_over_flops(given["kv"], given["P"], rates(given))
    step = step_of(given, 1, context)
    assert math.isclose(step.math, step.cache)
    return {"S_cross": context}


@solves("applied-inference.pareto_compute_bound_batch")
def shaded(given: dict[str, Any]) -> dict[str, Any]:
    batch = critical_batch(rates(given), "int8")
    step = step_of(given, batch, 2048)
    assert math.isclose(step.math, step.weights)
    return {"B": batch}


# Questions.


@solves("applied-inference.q1_405b_forward")
def forward_of_405b(given: dict[str, Any]) -> dict[str, Any]:
    check({"P": given["P"]}, "llama3.1-405b")
    times = {name: decode_times(1, 0, given["P"], 1, rates(given), weights=name) for name in ("bf16", "int8")}
    return {
        "flops": model_flops(given["P"], 1, training=False),
        "flops_bound_ms_N": times["bf16"].math * 1e3,
        "hbm_bf16_s_N": times["bf16"].weights,
        "hbm_int8_s_N": times["int8"].weights,
    }


@solves("applied-inference.q2_8b_serving")
def serving_8b(given: dict[str, Any]) -> dict[str, Any]:
    check(given, "llama3-8b")
    per_token = kv_bytes_per_token(load_model("llama3-8b"), "int8")
    weights, caches = given["P"] * dtype_bytes("int8"), given["B"] * given["S"] * per_token
    piece = smallest_slice(v5e(given), weights + caches)
    assert piece is not None
    return {
        "weights": weights,
        "kv_per_token": per_token,
        "kv_total": caches,
        "activations": array_bytes(parse_array("T:bf16[B, F]"), {"B": given["B"], "F": given["F"]}),
        "chips": piece.chips,
    }


@solves("applied-inference.q3_405b_plan")
def plan_of_405b(given: dict[str, Any]) -> dict[str, Any]:
    check({name: given[name] for name in ("P", "kv", "F")}, "llama3.1-405b")
    chip, params, limit = v5e(given), given["P"], given["limit"]
    assert chip.bandwidth("hbm") == given["W"]
    cache, machine = given["kv"] * given["S"], rates_of(chip)
    least = smallest_slice(chip, params)
    assert least is not None

    def loading(chips: int) -> float:
        return decode_times(1, cache, params, chips, machine, weights="int8").weights

    chips = least.chips
    while loading(chips) > limit:
        chips *= 2
    fits = largest_batch(chips * chip.hbm.capacity, params, cache)
    batch = minimum(floor(batch_within(limit, cache, params, chips, machine, weights="int8")), fits)
    step = decode_times(batch, cache, params, chips, machine, weights="int8").lower
    return {
        "min_chips": least.chips,
        f"load_{least.chips}": loading(least.chips),
        f"ok_{least.chips}": loading(least.chips) < limit,
        "chips": chips,
        f"load_{chips}": loading(chips),
        f"batch_{chips}": batch,
        "tput_per_chip": throughput(batch, step, chips),
        "min_step_256": loading(math.prod(chip.network.pod)),
        "tp_2axes_limit": prefill_degree(given["F"], chip, axes=2),
    }
