"""Solutions of the chapter on training: data, fully sharded and tensor parallelism, each alone."""

import math
from typing import Any

import sympy

from dragonscale.course.closed_forms.crossovers import find_rules
from dragonscale.course.closed_forms.rooflines import axis_bandwidth, layer_times, letters, ring_mesh, wire_intensity
from dragonscale.course.closed_forms.rules_of_thumb import largest_model, stage_utilisation, state_bytes
from dragonscale.course.closed_forms.schemes import Scheme, read_scheme, told, waits
from dragonscale.physics.hardware import Chip, load_chip
from dragonscale.physics.notation import parse_array, parse_einsum
from dragonscale.physics.rooflines import array_bytes, solve_equal, symbol
from dragonscale.physics.sharding.algebra import derive
from dragonscale.physics.sharding.layout import local_bytes
from dragonscale.physics.sharding.mesh import Mesh
from dragonscale.plan.reader import Move
from tests.book.casebook import solves
from tests.book.formulas import exponent, numbers_of

DTYPES = {1: "int8", 2: "bf16", 4: "fp32"}
DP, FSDP, TP = (read_scheme(name) for name in ("dp", "fsdp", "tp"))
B = symbol("B")


def v5p(given: dict[str, Any]) -> Chip:
    """The chip of the chapter, checked against what the case gives of it."""
    chip = load_chip("v5p")
    known = {
        "C": chip.peak("bf16"),
        "W": axis_bandwidth(chip),
        "HBM": chip.hbm.capacity,
        "alpha": wire_intensity(chip),
        "pod_chips": math.prod(chip.network.pod),
        "W_dcn": chip.dcn,
    }
    assert all(known[name] == given[name] for name in known if name in given)
    return chip


def limit(scheme: Scheme, chip: Chip, spans: dict[str, Any], **sizes: Any) -> float:
    """Where the one rule of a scheme turns on a chip: tokens per way of data parallelism, or ways of tensor
    parallelism."""
    (rule,) = find_rules(scheme, *letters(scheme))
    return float(rule.value.subs(numbers_of(chip, sizes, spans=spans)))


def some(given: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: given[name] for name in names}


# The layer.


@solves("training.mlp_layer_flops")
def layer_flops(given: dict[str, Any]) -> dict[str, Any]:
    layer = read_scheme("In[B, D] · W_in[D, F] · W_out[F, D] -> Out[B, D]")
    return {
        "fwd_matmuls": len(layer.forward),
        "bwd_matmuls": len(layer.backward),
        "fwd_flops": sum(planned.line.flops(given) for planned in layer.forward),
        "bwd_flops": sum(planned.line.flops(given) for planned in layer.backward),
    }


@solves("training.backward_matmuls")
def backward_products(_: dict[str, Any]) -> dict[str, Any]:
    layer = read_scheme("In[B, D] · W_in[D, F] · W_out[F, D] -> Out[B, D]")
    answer: dict[str, str] = {}
    for planned in layer.backward:
        left, right = (str(array).replace(", ", ",") for array in planned.line.operands)
        answer[planned.line.output.name] = f"{left} *_{''.join(planned.line.contracted)} {right}"
    return answer


@solves("training.single_chip_critical_batch")
def weights_from_hbm(given: dict[str, Any]) -> dict[str, Any]:
    line = parse_einsum("In:bf16[B, D] @ W:bf16[D, F] -> Out:bf16[B, F]")
    sizes = {name: symbol(name) for name in "BDF"}
    answer: dict[str, Any] = {}
    for name, peak, width in (("v5e", "C", "W_hbm"), ("v5p", "C_v5p", "W_hbm_v5p")):
        chip = load_chip(name)
        assert (chip.peak("bf16"), chip.bandwidth("hbm")) == (given[peak], given[width])
        loading = array_bytes(line.operands[1], sizes) / chip.bandwidth("hbm")
        (answer[f"{name}_tokens"],) = solve_equal(line.flops(sizes) / chip.peak("bf16"), loading, B)
    return answer


# State.


@solves("training.adam_bytes_per_param")
def adam(given: dict[str, Any]) -> dict[str, Any]:
    moments = [DTYPES[given["moment_bytes"]]] * given["n_moments"]
    return {"bytes_per_param": state_bytes(1, DTYPES[given["weight_bytes"]], moments)}


@solves("training.dp_max_params_v5p")
def largest_data_parallel(given: dict[str, Any]) -> dict[str, Any]:
    return {"max_params": largest_model(v5p(given), given["bytes_per_param"])}


@solves("training.zero_state_memory")
def sharded_state(given: dict[str, Any]) -> dict[str, Any]:
    mesh, sizes = Mesh({"X": given["X"]}), {"S": state_bytes(given["P"])}
    layouts = {"dp": "State:int8[S]", "fsdp": "State:int8[S_X]"}
    return {name: local_bytes(parse_array(layout), sizes, mesh) for name, layout in layouts.items()}


# Data parallelism and FSDP.


@solves("training.dp_layer_times")
def data_parallel_layer(given: dict[str, Any]) -> dict[str, Any]:
    times = layer_times(DP, some(given, "B", "D", "F"), ring_mesh(some(given, "X"), v5p(given)), "backward")
    assert not layer_times(DP, some(given, "B", "D", "F"), ring_mesh(some(given, "X"), v5p(given))).comms
    return {"T_math": times.math, "T_comms": times.network(), "bound": times.bound()}


@solves("training.fsdp_layer_times")
def sharded_layer(given: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    for phase, short in (("forward", "fwd"), ("backward", "bwd")):
        times = layer_times(FSDP, some(given, "B", "D", "F"), ring_mesh(some(given, "X"), v5p(given)), phase)
        answer |= {f"T_math_{short}": times.math, f"T_comms_{short}": times.network(), f"ratio_{short}": times.ratio()}
    return answer


@solves("training.dp_min_batch_1axis", "training.dp_min_batch_3axes_pod")
def least_batch(given: dict[str, Any]) -> dict[str, Any]:
    tokens = [limit(scheme, v5p(given), {"X": given.get("M", 1)}) for scheme in (DP, FSDP)]
    assert tokens[0] == tokens[1]
    if "pod_chips" not in given:
        return {"B_per_chip": tokens[0]}
    return {"B_per_chip": tokens[0], "B_pod": tokens[0] * math.prod(v5p(given).network.pod)}


@solves("training.multi_axis_effect")
def several_axes(given: dict[str, Any]) -> dict[str, Any]:
    sizes, chip = {"B": 2**20, "D": 8192, "F": 32768}, load_chip("v5p")
    one, several = (
        layer_times(FSDP, sizes, ring_mesh({"X": 64}, chip, {"X": count})).network() for count in (1, given["M"])
    )
    return {"time_factor": several / one}


@solves("training.deepseek_v2_fsdp_chips")
def chips_of_a_batch(given: dict[str, Any]) -> dict[str, Any]:
    chips = given["B"] / limit(FSDP, v5p(given), {"X": given["M"]})
    return {"chips": chips, "pods": chips / math.prod(v5p(given).network.pod)}


@solves("training.batch_vs_bottleneck")
def smaller_batches(_: dict[str, Any]) -> dict[str, Any]:
    powers = [exponent(layer_times(scheme, *letters(scheme), "backward").ratio(), B) for scheme in (DP, FSDP)]
    return {"answer": "more comms-bound" if min(powers) > 0 else "less comms-bound"}


@solves("training.context_parallel_is_dp")
def tokens_are_alike(_: dict[str, Any]) -> dict[str, Any]:
    """Sequences split or batch split: the same times. In attention a query meets keys of other chips."""
    split = {"batch": "B_X, S", "sequence": "B, S_X"}
    schemes = [
        read_scheme(f"In[{dims}, D] · W_in[D_X, F] · W_out[F, D_X] -> Out[{dims}, D]") for dims in split.values()
    ]
    passes = [[layer_times(scheme, *letters(scheme), phase) for phase in ("forward", "backward")] for scheme in schemes]
    plain = [layer_times(FSDP, *letters(FSDP), phase) for phase in ("forward", "backward")]
    alike = passes[0] == passes[1] and all(
        each.math == whole.math.subs(B, B * symbol("S")) and each.comms == whole.comms
        for each, whole in zip(passes[0], plain, strict=True)
    )
    scores = parse_einsum("Q[B, T_X, H] @ K[B, S_X, H] -> A[B, T_X, S]")
    ways = derive(scores, Mesh({"X": 4})) + derive(
        parse_einsum("Q[B, T_X, H] @ K[B, S_X, H] -> A[B, T, S_X]"), Mesh({"X": 4})
    )
    assert all(way.collectives for way in ways)
    gathered = {way.collectives[0].before.name for way in ways if len(way.collectives) == 1 and way.before}
    names = " or ".join({"K": "KVs", "Q": "Qs"}[name] for name in sorted(gathered))
    return {
        "mlp": f"{'identical to' if alike else 'different from'} data parallelism: only total tokens matter",
        "attention": f"extra gather of {names}, typically overlapped via ring attention",
    }


@solves("training.table_fsdp")
def table_of_fsdp(given: dict[str, Any]) -> dict[str, Any]:
    sizes, mesh = letters(FSDP)
    numbers, chips = some(given, "B", "D", "F"), Mesh(some(given, "X"))
    answer: dict[str, Any] = {}
    for short, lines, moves in (("fwd", FSDP.forward, FSDP.forward_moves), ("bwd", FSDP.backward, FSDP.backward_moves)):
        answer[f"flops_{short}"] = sum(planned.best.flops(sizes, mesh) for planned in lines)
        answer[f"bytes_{short}"] = sum(move.step.volume(numbers, chips) for move in moves)
    return answer


# Tensor parallelism.


@solves("training.tp_layer_times")
def tensor_layer(given: dict[str, Any]) -> dict[str, Any]:
    mesh = ring_mesh(some(given, "Y"), v5p(given), {"Y": given["M_Y"]})
    times = layer_times(TP, some(given, "B", "D", "F"), mesh)
    assert math.isclose(times.ratio(), layer_times(TP, some(given, "D", "F") | {"B": 1}, mesh).ratio())
    return {"T_math": times.math, "T_comms": times.network(), "ratio": times.ratio()}


@solves("training.tp_required_F")
def least_width(given: dict[str, Any]) -> dict[str, Any]:
    times = layer_times(TP, *letters(TP))
    (width,) = solve_equal(times.math, times.network(), symbol("F"))
    return {
        "F_min": [float(width.subs(numbers_of(v5p(given), {}, {"Y": ways}, {"Y": 1}))) for ways in given["Y"]],
    }


@solves("training.tp_max_gemma7b")
def gemma_tensor_ways(given: dict[str, Any]) -> dict[str, Any]:
    most = {name: limit(TP, v5p(given), {"Y": 1}, F=given[name]) for name in ("F", "F_true")}
    return {"Y_max": most["F"], "Y_max_true_F": most["F_true"], "practical": 2 ** math.floor(math.log2(most["F"]))}


@solves("training.tp_critical_path")
def critical_paths(_: dict[str, Any]) -> dict[str, Any]:
    return {name: critical_path(scheme) for name, scheme in (("tp", TP), ("dp", DP), ("fsdp", FSDP))}


def critical_path(scheme: Scheme) -> str:
    """What a scheme waits for, each kind of collective with its arrays; else what can travel at any time."""
    moves = [*scheme.forward_moves, *(move for move in scheme.backward_moves if not scheme.regathered(move))]
    if all(waits(move) for move in moves):
        kinds: dict[str, list[str]] = {}
        for move in moves:
            kind, array = told(move).split("_", 1)[0], move.step.before.name
            kinds.setdefault(kind, []).append(array)
        parts = [f"{kind} {'/'.join(arrays)}" for kind, arrays in kinds.items()]
        return f"all ({', '.join(parts)})"
    assert not any(waits(move) for move in moves)
    free = {"weight": "prefetchable", "gradient": "async"}
    parts = [f"{move.what} {told(move).split('_', 1)[0]} {free[move.what]}" for move in moves]
    return f"none ({', '.join(dict.fromkeys(parts))})"


@solves("training.collectives_dp", "training.collectives_tp")
def collectives_of_a_scheme(given: dict[str, Any]) -> dict[str, Any]:
    scheme = read_scheme(f"In[{given['In']}] · W_in[{given['W_in']}] · W_out[{given['W_out']}] -> Out[{given['Out']}]")

    def spelt(move: Move) -> str:
        if not waits(move):
            dims = ",".join(dim.name for dim in move.step.after.dims)
            return f"{told(move)}[{dims}] (async)"
        return f"{told(move)} ({'skippable if saved' if scheme.regathered(move) else 'critical'})"

    return {
        "fwd": [spelt(move) for move in scheme.forward_moves],
        "bwd": [spelt(move) for move in scheme.backward_moves],
    }


# Pipelines.


@solves("training.pp_naive_utilisation", "training.pp_microbatch_bubble")
def bubbles(given: dict[str, Any]) -> dict[str, Any]:
    used = stage_utilisation(given["Z"], given.get("m", 1))
    return {"bubble": 1 - used} if "m" in given else {"utilisation": used, "bubble": 1 - used}


@solves("training.pp_comm_bytes")
def sent_between_stages(given: dict[str, Any]) -> dict[str, Any]:
    return {"bytes_fwd": array_bytes(parse_array("bf16[B, D]"), given)}


# Across pods.


@solves("training.dcn_intensity")
def tokens_per_pod(given: dict[str, Any]) -> dict[str, Any]:
    return {"B_per_pod": pod_limit(v5p(given))}


def pod_limit(chip: Chip) -> float:
    """Tokens per pod above which copies of the model across pods can reduce their gradients under compute."""
    scheme = read_scheme("pods")
    (rule,) = [rule for rule in find_rules(scheme, *letters(scheme, ("P",))) if rule.axes == ("P",)]
    assert (str(rule), rule.phase) == ("B/P > C/W_dcn", "backward")
    return float(rule.value.subs(numbers_of(chip, {})))


@solves("training.legacy_dcn_pod")
def pod_as_one_chip(given: dict[str, Any]) -> dict[str, Any]:
    (rule,) = find_rules(DP, *letters(DP, per_axis=True))
    pod = {symbol("C"): sympy.Float(given["C_pod"]), symbol("W_X"): given["W_pod"]}
    return {"B_per_pod": float(rule.value.subs(pod))}
