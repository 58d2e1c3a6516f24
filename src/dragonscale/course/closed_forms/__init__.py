"""The book's closed forms: formulas one can do on the back of an envelope, on floats, arrays or symbols.

The planner derives its numbers from a program of einsums, its shardings and a chip. These functions do not: each is
a formula of its own, as the book writes it, with what it leaves out said beside it. They answer the quick questions
(how many days, which batch, how many chips) and are what the tests hold the derived numbers against.
`docs/closed-forms.md` goes through them with examples.

>>> import dragonscale as ds
>>> v5e = ds.rates_of(ds.load_chip("v5e"))
>>> round(ds.closed_forms.critical_batch(v5e))
240
>>> ds.closed_forms.state_bytes(70e9) / 1e9
700.0
"""

from importlib import import_module
from typing import Any

NAMES = {
    "rules_of_thumb": (
        "state_bytes",
        "largest_model",
        "checkpoint_bytes",
        "sequences",
        "run_seconds",
        "run_cost",
        "stage_utilisation",
    ),
    "decode_floor": (
        "decode_times",
        "critical_batch",
        "batch_within",
        "throughput",
        "plateau",
        "cache_over_flops",
        "cache_over_weights",
        "attention_intensity",
        "attention_prefill_length",
    ),
    "serving_fleet": (
        "free_bytes",
        "largest_batch",
        "requests_per_second",
        "finished_per_step",
        "evicted_per_step",
    ),
    "serving_splits": (
        "prefill_degree",
        "decode_degree",
        "one_axis",
        "two_axes",
        "best_two_axes",
        "chips_for_2d",
        "decode_attention_moves",
    ),
    "speculation": ("kept_tokens", "loop_seconds", "seconds_for", "best_drafts", "free_drafts"),
    "pools": ("interrupted_step", "longest_prefill", "transfer_seconds", "break_even_bandwidth", "prompt_wait"),
    "failures": ("time_between_failures", "checkpoint_interval", "goodput", "time_with_failures"),
    "schemes": ("SCHEMES", "Scheme", "read_scheme"),
    "rooflines": ("layer_times", "letters", "ring_mesh", "wire_intensity", "abstract_torus"),
    "crossovers": ("find_rules", "best_split", "least_tokens", "rank_splits"),
    "training_limits": (
        "fsdp_tokens",
        "pod_tokens",
        "tp_degree",
        "tp_width",
        "mixed_tokens",
        "mixed_degree",
        "mixed_ratio",
        "split_ratio",
        "split_tokens",
        "layer_seconds",
        "weight_seconds",
        "activation_seconds",
    ),
    "planned_passes": ("pass_times",),
    "pipelined": ("pipeline_hops", "pipeline_time"),
    "costs": ("pointwise_cost", "tiled_matmul_cost", "attention_cost", "padded"),
    "chip_parts": (
        "abstract_chip",
        "counterpart",
        "systolic_flops",
        "core_peak",
        "vector_flops",
        "implied_clock",
        "matrix_flops_per_cycle",
        "filling_side",
        "vector_alus",
        "reduction_shifts",
        "resident_warps",
        "cores_filled",
        "flops_per_usd",
        "dense_rate",
        "utilisation",
    ),
    "networks": (
        "egress_from_bisection",
        "cables_per_pair",
        "ports_used",
        "tier_bandwidths",
        "binding_tier",
        "tree_switches",
        "tree_bandwidth",
    ),
    "switched": ("dp_tokens", "tp_ways", "ep_width"),
    "operators": ("as_matrix", "transpose_of"),
    "softmax": ("Partial", "combine"),
    "spread": ("spread_gather",),
}
"""The functions by the module that holds them; each module's docstring says where its formulas come from."""
ELSEWHERE = {
    "dragonscale.physics.rooflines.counts": ("model_flops",),
    "dragonscale.serving.speculation": ("tokens_per_loop",),
    "dragonscale.serving.economics": ("usd_per_million", "pool_ratio"),
    "dragonscale.physics.hardware.parts": ("alus", "cores", "matrix_units", "matrix_tile", "structural_peak"),
    "dragonscale.physics.hardware.paths": ("axis_diameter", "disjoint_paths", "eccentricity"),
    "dragonscale.physics.hardware.slices": ("hops", "links_of"),
    "dragonscale.physics.hardware.fat_tree": ("fat_tree", "switch_for"),
    "dragonscale.physics.collectives.tiers": ("tier_seconds", "switch_traffic"),
    "dragonscale.physics.collectives.cost": ("ragged_fill", "bus_bandwidth"),
    "dragonscale.training.stages": ("bubble", "held_microbatches", "chunk_sizes"),
    "dragonscale.training.expert_load": ("chip_load", "dropped_share"),
    "dragonscale.physics.collectives.transfer": (
        "ring_hops",
        "hop_bytes",
        "hop_seconds",
        "all_to_all_piece",
        "all_to_all_sends",
        "transfer_time",
        "gather_time",
    ),
}
"""Formulas that the planner uses too and that live with what they are about."""
_HOME = {name: f"{__name__}.{home}" for home, names in NAMES.items() for name in names}
_HOME |= {name: home for home, names in ELSEWHERE.items() for name in names}
__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(_HOME)
