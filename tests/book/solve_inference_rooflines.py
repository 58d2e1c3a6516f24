"""Solutions of the chapter on inference: rooflines of linear operations and attention, decode steps,
worked questions."""

import math
from typing import Any

import numpy
import sympy

from dragonscale.course.closed_forms.decode_floor import (
    attention_intensity,
    attention_prefill_length,
    cached_attention_cost,
    critical_batch,
    decode_times,
    linear_cost,
    throughput,
)
from dragonscale.course.closed_forms.rooflines import axis_bandwidth, wire_intensity
from dragonscale.course.closed_forms.serving_fleet import free_bytes, largest_batch
from dragonscale.models import count_parameters, kv_bytes_per_token, load_model, simple
from dragonscale.models.flops import Workload, forward_flops
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, load_chip
from dragonscale.physics.rooflines import Rates, rates_of, symbol
from dragonscale.physics.rooflines.model_flops import model_flops
from dragonscale.serving.space.space import smallest_slice
from tests.book.casebook import solves

DTYPES = {16: "bf16", 8: "int8", 4: "int4"}
"""Formats by their bits."""


def v5e(given: dict[str, Any]) -> Chip:
    """The chip of the chapter, checked against what the case gives of it; the intensity of its wires as the book rounds
    it where the case does."""
    chip = load_chip("v5e").reading("book")
    known = {
        "C": chip.peak("bf16"),
        "C_bf16": chip.peak("bf16"),
        "C_int8": chip.peak("int8"),
        "W_hbm": chip.bandwidth("hbm"),
        "HBM": chip.hbm.capacity,
    }
    assert all(known[name] == given[name] for name in known if name in given)
    if "bw" in given:
        assert given["bw"] % chip.bandwidth("hbm") == 0
    if "alpha" in given:
        assert math.isclose(wire_intensity(chip), given["alpha"], rel_tol=0.01)
        chip = chip.with_facts(**{"ici.link": chip.peak("bf16") / given["alpha"] / 2})
    if "beta" in given:
        assert math.isclose(chip.bandwidth("hbm") / axis_bandwidth(chip), given["beta"], rel_tol=0.15)
        chip = chip.with_facts(**{"ici.link": chip.bandwidth("hbm") / given["beta"] / 2})
    return chip


def rates(given: dict[str, Any]) -> Rates:
    """What the chapter's chip does per second."""
    return rates_of(v5e(given))


# Basics.


@solves("inference.naive_complexity")
def growth(_: dict[str, Any]) -> dict[str, Any]:
    """FLOPs of generating n tokens and twice as many, each step over the whole prefix or over the new token alone."""
    sections = load_model("llama3-8b").program().sections

    def order(cached: bool, part: str) -> str:
        totals = []
        for count in (2048, 4096):
            length = numpy.arange(1.0, count + 1)
            work = Workload(1, numpy.ones(count) if cached else length, length, causal=False)
            totals.append(numpy.sum(forward_flops(sections, work)[part]))
        power = math.log2(totals[1] / totals[0])
        assert math.isclose(power, round(power), abs_tol=0.01)
        return "O(n)" if round(power) == 1 else f"O(n^{round(power)})"

    return {
        f"{how}_{name}": order(how == "cached", part)
        for how in ("naive", "cached")
        for name, part in (("ffw", "mlp"), ("attention", "scores"))
    }


# Linear operations.


@solves("inference.bcrit_int8_weights", "inference.bcrit_int8_int8")
def critical(given: dict[str, Any]) -> dict[str, Any]:
    weights, compute = (DTYPES[given.get(name, 8)] for name in ("bits_param", "bits_act"))
    return {"B_crit": critical_batch(rates(given), weights, compute)}


@solves("inference.bcrit_formula_trap")
def which_peak(given: dict[str, Any]) -> dict[str, Any]:
    """beta·alpha is right with beta half the bytes of a weight, or with bits over bits and always the peak of bf16."""
    chip, beta = v5e(given), given["bits_param"] / given["bits_act"]
    assert chip.bandwidth("hbm") == given["W"]
    printed = {name: beta * chip.intensity(name) for name in ("bf16", "int8")}
    right = critical_batch(rates_of(chip), "int8", "int8")
    assert math.isclose(right, printed["bf16"])
    return {"correct": right, "beta_with_bf16_C": printed["bf16"], "beta_with_int8_C": printed["int8"]}


@solves("inference.bcrit_h100")
def critical_on_h100(given: dict[str, Any]) -> dict[str, Any]:
    chip = load_chip("h100")
    assert chip.bandwidth("hbm") == given["W_hbm"]
    assert math.isclose(chip.peak("bf16"), given["C"], rel_tol=0.001)
    return {"B_crit": critical_batch(rates_of(chip))}


# Attention.


@solves("inference.attn_intensity")
def intensities(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "prefill": attention_intensity(given["T"], given["S"]),
        "decode": attention_intensity(given["T_dec"], given["S"]),
    }


@solves("inference.attn_prefill_threshold")
def long_enough(given: dict[str, Any]) -> dict[str, Any]:
    return {"T_min": attention_prefill_length(rates(given))}


@solves("inference.attn_decode_bound")
def batched_attention(_: dict[str, Any]) -> dict[str, Any]:
    """FLOPs and bytes of B sequences are B times those of one; the ratio tends to 1 for long contexts."""
    batch, keys = symbol("B"), symbol("S")
    many = cached_attention_cost(1, keys) * batch
    intensity = sympy.simplify(many.intensity())
    limit = sympy.limit(intensity, keys, sympy.oo)
    assert limit < load_chip("v5e").intensity()
    answer = "no" if batch not in intensity.free_symbols else "yes"
    return {"answer": f"{answer}; intensity is constant ~{limit} because every sequence brings its own KV cache"}


# Steps.


@solves("inference.popquiz_small_batch")
def small_batch(given: dict[str, Any]) -> dict[str, Any]:
    assert given["bytes_param"] == 1
    cache = given["kv_per_token"] * given["S"]
    step = decode_times(given["B"], cache, given["P"], given["chips"], rates(given), weights="int8")
    return {"kv_per_seq": cache, "step": step.lower}


LLAMA2 = load_model("llama2-13b")
SERVER = load_chip("v5e").host_chips
"""Chips of the server in the tables."""


def multi_head(kv_heads: int = 40) -> Transformer:
    """LLaMA-2 13B, with fewer KV heads if asked."""
    block = LLAMA2.program().sections[1].dims
    return simple(
        "tables",
        d_model=block["d"],
        d_ff=block["f"],
        n_layers=LLAMA2.n_layers,
        n_heads=block["n"],
        n_kv_heads=kv_heads,
        vocab=LLAMA2.vocab,
    )


@solves("inference.table_mha_13b", "inference.table_gqa_13b")
def batch_table(given: dict[str, Any]) -> dict[str, Any]:
    """The tables round the cache to 6.7 and 1.34 GB and the weights to 26 GB."""
    heads = round(40 * given["kv"] / 6.7e9)
    assert math.isclose(kv_bytes_per_token(multi_head(heads)) * 8192, given["kv"], rel_tol=0.003)
    assert math.isclose(count_parameters(LLAMA2).total * 2, given["params"], rel_tol=0.003)
    assert SERVER * v5e(given).bandwidth("hbm") == given["bw"]
    batch = numpy.array(given["B"], float)
    step = decode_times(batch, given["kv"], given["params"] / 2, SERVER, rates(given)).lower
    return {
        "kv_gb": list(batch * given["kv"] / 1e9),
        "total_gb": list((batch * given["kv"] + given["params"]) / 1e9),
        "step_ms": list(step * 1e3),
        "tput": list(throughput(batch, step)),
    }


@solves("inference.table_mha_13b_max_batch")
def batch_that_fits(given: dict[str, Any]) -> dict[str, Any]:
    assert math.isclose(kv_bytes_per_token(multi_head()) * 8192, given["kv"], rel_tol=1e-3)
    decimal, binary = (SERVER * load_chip("v5e").reading(source).hbm.capacity for source in ("book", "jax"))
    return {
        "max_batch_16GB": largest_batch(decimal, given["params"], given["kv"]),
        "max_batch_16GiB": largest_batch(binary, given["params"], given["kv"]),
    }


# The invented model of the questions, dense and as a mixture of 16 experts of which a token uses 2.


def invented(given: dict[str, Any], **more: Any) -> Transformer:
    names = {"n_layers": "L", "d_model": "D", "d_ff": "F", "n_heads": "N_heads", "n_kv_heads": "K", "head_dim": "H"}
    return simple(
        "invented", **{name: given[letter] for name, letter in names.items()}, vocab=given["V"], tied=True, **more
    )


QUESTION_1 = {"L": 64, "D": 4096, "F": 16384, "N_heads": 32, "K": 8, "H": 256, "V": 32128}
MIXTURE = count_parameters(invented(QUESTION_1, n_experts=16, experts_per_token=2))


@solves("inference.q1_params_kv")
def parameters_and_cache(given: dict[str, Any]) -> dict[str, Any]:
    assert given == QUESTION_1
    model = invented(given)
    return {"params": count_parameters(model).total, "kv_per_token": kv_bytes_per_token(model, "int8")}


@solves("inference.q3_param_load")
def loading(given: dict[str, Any]) -> dict[str, Any]:
    return {"t": decode_times(1, 0, given["params"], given["chips"], rates(given), weights="int8").weights}


@solves("inference.q4_latency_full")
def full_memory(given: dict[str, Any]) -> dict[str, Any]:
    chip = v5e(given)
    chips = given["bw"] / chip.bandwidth("hbm")
    cache = kv_bytes_per_token(invented(QUESTION_1), "int8") * 128_000
    assert math.isclose(cache, given["kv"], rel_tol=0.002)
    assert largest_batch(chips * chip.hbm.capacity, given["params"], given["kv"]) == given["B"]
    step = decode_times(given["B"], given["kv"], given["params"], chips, rates_of(chip), weights="int8")
    return {"step": step.lower}


@solves("inference.q5_4_moe_flops")
def flops_of_a_mixture(given: dict[str, Any]) -> dict[str, Any]:
    assert math.isclose(MIXTURE.active, given["activated"], rel_tol=0.005)
    return {"flops_per_token": model_flops(given["activated"], given["T"], training=False)}


@solves("inference.q6_1_moe_load")
def loading_a_mixture(given: dict[str, Any]) -> dict[str, Any]:
    chip, params, chips = v5e(given), given["params"], given["chips"]
    assert math.isclose(MIXTURE.total, params, rel_tol=1e-3)
    answer: dict[str, Any] = {}
    for dtype in ("int8", "bf16"):
        answer[f"{dtype}_ms"] = decode_times(1, 0, params, chips, rates_of(chip), weights=dtype).weights * 1e3
        held = linear_cost(1, params, dtype).bytes["hbm"] / chips
        answer[f"{dtype}_free"] = free_bytes(chip.hbm.capacity, held)
    return answer


@solves("inference.q6_2_moe_min_slice")
def slice_of_a_mixture(given: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    for dtype in ("int8", "bf16"):
        piece = smallest_slice(v5e(given), linear_cost(1, given["params"], dtype).bytes["hbm"])
        assert piece is not None
        answer[f"{dtype}_chips"] = piece.chips
    return answer
