"""Solutions of the chapter on training LLaMA-3."""

from typing import Any

from dragonscale.course.closed_forms.chip_parts import available_flops
from dragonscale.course.closed_forms.crossovers import power_splits, rank_splits
from dragonscale.course.closed_forms.rooflines import layer_times, ring_mesh
from dragonscale.course.closed_forms.rules_of_thumb import (
    DAY,
    YEAR,
    checkpoint_bytes,
    run_cost,
    run_seconds,
    sequences,
    state_bytes,
)
from dragonscale.course.closed_forms.schemes import read_scheme
from dragonscale.models import count_parameters, load_model
from dragonscale.physics.hardware.slices import chips_to_hold
from dragonscale.physics.rooflines.model_flops import model_flops
from dragonscale.physics.sharding.mesh import Mesh
from tests.book.casebook import load, plain, solves
from tests.book.solve_training_mixed import (
    D_MODEL,
    MIXED,
    SPANS,
    alone,
    best_ratio,
    best_ways,
    split_times,
    threshold,
)
from tests.book.solve_training_rules import FSDP, limit, pod_limit, v5p

MODEL = load_model("llama3-70b")
BLOCK = MODEL.program().sections[1]
NAMES = {"L": "repeat", "D": "d", "F": "f", "N_heads": "n", "K": "k", "H": "h", "V": "v"}


def check(given: dict[str, Any]) -> None:
    """The model in the catalogue is the one the case describes."""
    known = BLOCK.dims | {"repeat": BLOCK.repeat}
    assert all(given[name] == known[dim] for name, dim in NAMES.items() if name in given)


# Parameters and FLOPs.


@solves("applied-training.llama70b_config")
def shape_of_llama(given: dict[str, Any]) -> dict[str, Any]:
    check(given)
    dims = BLOCK.dims
    return {"ffw_multiplier": dims["f"] / dims["d"], "head_dim": dims["h"], "q_per_kv": dims["n"] / dims["k"]}


@solves("applied-training.llama70b_params")
def parameters_of_llama(given: dict[str, Any]) -> dict[str, Any]:
    check(given)
    counts = count_parameters(MODEL)
    parts = counts.by_part
    return {
        "ffw": parts["mlp"],
        "vocab": parts["embed"] + parts["head"],
        "attn": parts["attention"],
        "total": counts.total,
        "ffw_fraction": parts["mlp"] / counts.total,
    }


@solves("applied-training.total_flops")
def flops_of_the_run(given: dict[str, Any]) -> dict[str, Any]:
    flops = model_flops(given["P"], given["tokens"])
    return {"flops": flops, "years": run_seconds(flops, 1, v5p(given).peak("bf16")) / YEAR}


# Memory.


def held(given: dict[str, Any], per_layer: int) -> dict[str, float]:
    """State and checkpoints of a run that keeps so many tensors as wide as the model in each layer."""
    check(given)
    weights = state_bytes(given["P"], "bf16", ())
    return {
        "params": weights,
        "optimizer": state_bytes(given["P"]) - weights,
        "checkpoints": checkpoint_bytes(given["B"], [given["D"]] * per_layer, given["L"]),
    }


@solves("applied-training.memory_breakdown")
def memory_by_part(given: dict[str, Any]) -> dict[str, Any]:
    parts = held(given, given["ckpt_per_layer"])
    return parts | {"total": sum(parts.values())}


@solves("applied-training.min_chips")
def fewest_chips(given: dict[str, Any]) -> dict[str, Any]:
    chips = chips_to_hold(v5p(given), given["total"])
    work = available_flops(given["pod_chips"], given["pod_days"] * DAY, 1)
    seconds = run_seconds(work, chips, 1)
    return {"chips": chips, "days": seconds / DAY, "years": seconds / YEAR}


@solves("applied-training.per_chip_memory")
def memory_per_chip(given: dict[str, Any]) -> dict[str, Any]:
    return {f"per_chip_{count}": sum(held(given, count).values()) / given["N"] for count in (4, 12)}


@solves("applied-training.one_checkpoint")
def chips_with_one_checkpoint(given: dict[str, Any]) -> dict[str, Any]:
    return {"chips": chips_to_hold(v5p(given), sum(held(given, 1).values()))}


# How to shard.


@solves("applied-training.fsdp_no_sequence")
def whole_sequences(given: dict[str, Any]) -> dict[str, Any]:
    most = sequences(given["B"], given["S"])
    return {"max_dp": most, "feasible": most >= given["N"]}


@solves("applied-training.fsdp_with_sequence")
def split_sequences(given: dict[str, Any]) -> dict[str, Any]:
    chip = v5p(given)
    assert chip.network.axes == given["M"]
    return {
        "B_per_chip": given["B"] / given["N"],
        "threshold": limit(FSDP, chip, {"X": given["M"]}),
        "compute_bound": alone(chip, "fsdp", given["N"], BLOCK.dims["f"], given["B"]).bound() == "compute",
    }


@solves("applied-training.mixed_plan")
def mixed_plan(given: dict[str, Any]) -> dict[str, Any]:
    chip, tokens, chips, width = v5p(given), given["B"], given["N"], given["F"]
    check({"F": width})
    meshes = [ring_mesh(ways, chip, SPANS) for ways in power_splits(chips)]
    best = rank_splits(MIXED, {"B": tokens, "D": D_MODEL, "F": width}, meshes)[0]
    return {
        "threshold": threshold(chip, width),
        "B_per_chip": tokens / chips,
        "compute_bound": best_ratio(chip, tokens, chips, width) > 1 and best.times.bound() == "compute",
        "X_opt": best_ways(chip, tokens, chips, width),
        "X_choice": best.degrees["X"],
        "Y_choice": best.degrees["Y"],
    }


@solves("applied-training.final_plan")
def final_plan(given: dict[str, Any]) -> dict[str, Any]:
    """Batch and sequence split, weights over both; FSDP over two axes of the torus in all."""
    tokens, length = (plain(load("applied-training")["applied-training.fsdp_no_sequence"]["given"])[n] for n in "BS")
    scheme = read_scheme("In[B_X, S_Z, D_Y] · W_in[D_XZ, F_Y] · W_out[F_Y, D_XZ] -> Out[B_X, S_Z, D_Y]")
    ways = {"X": given["dp"], "Z": given["sp"], "Y": given["tp"]}
    sizes = {"B": sequences(tokens, length), "S": length} | {"D": BLOCK.dims["d"], "F": BLOCK.dims["f"]}
    mesh = ring_mesh(ways, v5p({}))  # X and Z have an axis each, so FSDP has two
    return {
        "chips": Mesh(dict(ways)).chips,
        "fsdp_degree": mesh.size("X", "Z"),
        "bound": layer_times(scheme, sizes, mesh).bound(),
    }


@solves("applied-training.train_cost")
def cost_of_the_run(given: dict[str, Any]) -> dict[str, Any]:
    chip = v5p({})
    assert chip.price == given["usd_per_chip_hour"]
    return {"usd": run_cost(given["chips"], given["days"] * DAY, chip.price)}


# Question 1.


@solves("applied-training.q1_four_pods")
def four_pods(given: dict[str, Any]) -> dict[str, Any]:
    chip, width, pod, pods = v5p(given), given["F"], given["pod_chips"], given["pods"]
    assert pod_limit(chip) == given["dcn"]
    per_pod = given["B"] / pods
    per_chip, least = per_pod / pod, threshold(chip, width)
    within = {
        "FSDP": per_chip > limit(FSDP, chip, {"X": 3}),
        "FSDP+TP": best_ratio(chip, per_pod, pod, width) > 1,
    }
    across = per_pod > pod_limit(chip)
    first = next(name for name, hides in within.items() if hides)
    return {
        "B_per_chip": per_chip,
        "ici_threshold": least,
        "ici_ok": per_chip > least,
        "B_per_pod": per_pod,
        "dcn_ok": across,
        "X_opt_in_pod": best_ways(chip, per_pod, pod, width),
        "ratio": best_ratio(chip, per_pod, pod, width),
        "days": run_seconds(given["flops"], pods * pod, chip.peak("bf16"), given["mfu"]) / DAY,
        "plan": f"{'DP across pods over DCN' if across else 'one pod'}; {first} inside each pod",
    }


@solves("applied-training.q1_four_pods_discrete")
def four_pods_in_whole_numbers(given: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    for ways in ((1024, 8), (512, 16)):
        times = split_times(v5p(given), given["B_pod"], given["F"], ways)
        name = "x".join(map(str, ways))
        answer |= {f"ok_{name}": times.bound() == "compute", f"ratio_{name}": times.ratio()}
    return answer
