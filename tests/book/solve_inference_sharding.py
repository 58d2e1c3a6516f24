"""Solutions of the chapter on inference: how models and caches are split, and what that sends."""

from typing import Any

from dragonscale.course.closed_forms.rooflines import axis_bandwidth
from dragonscale.course.closed_forms.serving_splits import (
    chips_for_2d,
    decode_attention_moves,
    decode_degree,
    latency_bound_bytes,
    layer_loading,
    layer_math,
    one_axis,
    prefill_degree,
    two_axes,
)
from dragonscale.errors import InputError
from dragonscale.models import load_model
from dragonscale.physics.collectives import Rings
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.notation import Einsum, parse_array, parse_einsum
from dragonscale.physics.rooflines import array_bytes, solve_equal, symbol
from dragonscale.physics.sharding.algebra import strategies
from dragonscale.physics.sharding.layout import check_layout, replicated_over
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.physics.sharding.reshard_step import Step
from tests.book.casebook import solves
from tests.book.solve_inference_rooflines import v5e
from tests.sharding.wording import BOOK_NAMES

DIMS = load_model("llama3-70b").program().sections[1].dims
SIZES = {"B": 32, "D": DIMS["d"], "F": DIMS["f"]}
"""A decode step of LLaMA-3 70B with a small batch."""


# Prefill.


@solves("inference.prefill_tp_limit")
def prefill_limit(given: dict[str, Any]) -> dict[str, Any]:
    return {"Y": [prefill_degree(width, v5e(given)) for width in given["F"]]}


@solves("inference.prefill_order")
def order_of_prefill(_: dict[str, Any]) -> dict[str, Any]:
    """A prompt of one sequence on 32 chips: tensor parallelism alone sends too much; the same chips hide what they send
    with as many ways as the wires allow and the tokens split over the rest, which adds nothing to send for the layer.
    """
    chip, tokens = load_chip("v5e"), 8192

    def hides(ways: int, split: int = 1) -> bool:
        sent = one_axis(tokens / split, SIZES["D"], axis_bandwidth(chip))
        return sent < layer_math(tokens / split, SIZES["D"], SIZES["F"], ways, chip.peak("bf16"))

    ways = 2 ** int(prefill_degree(SIZES["F"], chip)).bit_length() // 2
    order = ["model parallelism up to ICI bound"] if hides(ways) else []
    if not hides(32) and hides(ways, 32 // ways):
        order.append("then sequence parallelism (ring attention)")
    return {"order": order}


# Generation.


@solves("inference.decode_sharding_options")
def ways_to_decode(_: dict[str, Any]) -> dict[str, Any]:
    """Each parallelism alone on 16 chips: does a layer take less time than on one?"""
    chip, ways = load_chip("v5e"), 16
    d, f, batch, hbm = SIZES["D"], SIZES["F"], SIZES["B"], chip.bandwidth("hbm")
    alone = layer_loading(d, f, 1, hbm)
    gathered = (
        2 * d * f * 2 / axis_bandwidth(chip) + alone
    )  # FSDP brings every weight over the wires, and then reads it
    copied = layer_loading(d, f, 1, hbm)
    model = one_axis(batch, d, axis_bandwidth(chip)) + layer_loading(d, f, ways, hbm)
    try:
        check_layout(parse_array("In[T_X, D]"), {"T": 1, "D": SIZES["D"]}, Mesh({"X": ways}))
        sequence = "yes"
    except InputError:
        sequence = "no (one token)"
    return {
        "fsdp": "no (moves weights over ICI)" if gathered > alone else "yes",
        "data": "no (replicates weights; run more replicas instead)" if copied == alone else "yes",
        "sequence": sequence,
        "model": "yes" if model < alone / 2 else "no",
    }


@solves("inference.decode_tp_limit")
def decode_limit(given: dict[str, Any]) -> dict[str, Any]:
    return {"Y": decode_degree(given["F"], given["B"], v5e(given))}


@solves("inference.decode_beta")
def memory_over_wires(given: dict[str, Any]) -> dict[str, Any]:
    chips = [load_chip(name).reading("book") for name in ("v5e", "v6e")]
    assert [chip.bandwidth("hbm") for chip in chips] == given["hbm"]
    assert [axis_bandwidth(chip) for chip in chips] == given["ici"]
    # The ratio is what the limit of one way and one sequence comes to.
    return {"beta": [1 / decode_degree(1, 1, chip) for chip in chips]}


@solves("inference.attention_weight_sharding")
def attention_weights(_: dict[str, Any]) -> dict[str, Any]:
    sizes = {"D": DIMS["d"], "N": DIMS["n"], "K": DIMS["k"], "H": DIMS["h"], "B": 32}
    mesh = Mesh({"Y": DIMS["k"], "Z": 2})

    def divides(text: str) -> bool:
        try:
            check_layout(parse_array(text), sizes, mesh)
        except InputError:
            return False
        return True

    assert divides("W_Q[D, N_YZ, H]")
    assert divides("W_O[N_YZ, H, D]")
    assert not divides("W_K[D, K_YZ, H]")
    assert divides("W_K[D, K_Y, H]")
    first = parse_einsum("X[B, D] @ W_Q[D, N_YZ, H] -> Q[B, N_YZ, H]")
    last = parse_einsum("O[B, N_YZ, H] @ W_O[N_YZ, H, D] -> X[B, D]")
    megatron = [cheapest(first, sizes, mesh), cheapest(last, sizes, mesh)] == [[], ["AllReduce_YZ"]]
    copies = replicated_over(parse_array("W_K[D, K_Y, H]"), mesh)
    return {
        "WQ_WO": "over heads" + (", Megatron style" if megatron else ""),
        "WK_WV": "up to K ways" + (", then replicate" if copies == ("Z",) else ""),
    }


def named(step: Step) -> str:
    return f"{BOOK_NAMES[step.kind]}_{''.join(step.axes)}"


def cheapest(line: Einsum, sizes: dict[str, Any], mesh: Mesh) -> list[str]:
    """The collectives of the cheapest way to compute a line."""
    return [named(step) for step in strategies(line, sizes, mesh)[0].collectives]


@solves("inference.kv_shard_algorithm")
def split_cache(_: dict[str, Any]) -> dict[str, Any]:
    dims = {"B": "batch", "N": "heads"}
    said = []
    for step in decode_attention_moves("batch"):
        before, after = (
            {dim.name for dim in array.dims if set(step.axes) & set(dim.axes)} for array in (step.before, step.after)
        )
        turned = "->".join(dims[name] for held in (before, after) for name in held)
        said.append(f"{named(step)} ({step.before.name}{': ' + turned if step.kind == 'all_to_all' else ''})")
    mesh, cache = Mesh({"Y": 8, "Z": 2}), parse_array("KV[A, B_Z, S, K_Y, H]")  # A: keys and values
    check_layout(cache, {"A": 2, "B": 32, "S": 8192, "K": DIMS["k"], "H": DIMS["h"]}, mesh)
    return {"collectives": said, "kv_fully_sharded": not replicated_over(cache, mesh)}


# Question 7 and appendix B: weights that stay.


@solves("inference.q7_2d_comms")
def split_both_dims(given: dict[str, Any]) -> dict[str, Any]:
    chip = load_chip("v5e")
    assert axis_bandwidth(chip) == given["W"]
    sizes = [given[name] for name in "BDF"]
    return {"T_2d": two_axes(*sizes, (given["X"], given["YZ"]), axis_bandwidth(chip))}


@solves("inference.q7_crossover")
def from_how_many_chips(given: dict[str, Any]) -> dict[str, Any]:
    return {"N_F4D": chips_for_2d(4), "N_general": [chips_for_2d(ratio) for ratio in given["ratios"]]}


@solves("inference.appB_collectives")
def stationary_collectives(_: dict[str, Any]) -> dict[str, Any]:
    mesh = Mesh({"X": 2, "Y": 3, "Z": 5})
    sizes = {"B": 1800, "D": 30 * 8192, "F": 30 * 32768}
    schemes = {
        "one_d": ("In[B, D_XYZ] @ W[D, F_XYZ] -> T[B, F_XYZ]", "T[B, F_XYZ] @ W[F_XYZ, D] -> Out[B, D_XYZ]"),
        "two_d": ("In[B, D_XYZ] @ W[D_X, F_YZ] -> T[B, F_YZX]", "T[B, F_YZX] @ W[F_YZ, D_X] -> Out[B, D_XYZ]"),
    }
    return {
        name: [
            f"{step.kind.replace('_', '-')}({''.join(step.axes).lower()})"
            for line in lines
            for step in strategies(parse_einsum(line), sizes, mesh)[0].collectives
        ]
        for name, lines in schemes.items()
    }


# Appendix C: small collectives.


def ring_of(size: Any) -> Rings:
    """So many chips around one axis of a v5e."""
    group = Mesh({"X": size}, load_chip("v5e").reading("book")).group(("X",))
    assert isinstance(group, Rings)
    return group


@solves("inference.appC_latency_threshold")
def small_buffer(given: dict[str, Any]) -> dict[str, Any]:
    ring = ring_of(given["n"])
    assert (ring.link, ring.hop) == (given["W_uni"], given["hop"])
    return {"bytes": latency_bound_bytes("all_gather", ring)}


@solves("inference.appC_example")
def small_batch(given: dict[str, Any]) -> dict[str, Any]:
    size = array_bytes(parse_array("In:int8[B, D]"), {"B": given["B"], "D": given["D"]})
    least = latency_bound_bytes("all_gather", ring_of(8))
    assert least == given["threshold"]
    return {"bytes": size, "latency_bound": size < least}


@solves("inference.appC_Y_rule")
def ways_of_latency(given: dict[str, Any]) -> dict[str, Any]:
    ways = symbol("Y")
    assert ring_of(ways).link == given["W_uni"]
    least = latency_bound_bytes("all_gather", ring_of(ways))
    size = array_bytes(parse_array("In:int8[B, D]"), {"B": given["B"], "D": given["D"]})
    return {"Y": solve_equal(least, size, ways)[0]}
