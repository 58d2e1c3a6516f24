"""Units of what closed forms take and give. They reckon with plain numbers in base units; here it is said which."""

RESULTS: dict[str, str] = {
    "state_bytes": "bytes", "checkpoint_bytes": "bytes", "run_seconds": "s", "run_cost": "USD", "throughput": "/s", "plateau": "/s",
    "free_bytes": "bytes", "requests_per_second": "/s", "loop_seconds": "s", "core_peak": "FLOP/s", "vector_flops": "FLOP/s",
    "implied_clock": "/s", "flops_per_usd": "FLOP/USD", "dense_rate": "FLOP/s", "model_flops": "FLOP", "structural_peak": "FLOP/s",
    "hop_bytes": "bytes", "hop_seconds": "s", "all_to_all_piece": "bytes", "egress_from_bisection": "bytes/s",
    "tier_bandwidths": "bytes/s", "tier_seconds": "s", "attention_intensity": "FLOP/byte", "wire_intensity": "FLOP/byte",
    "systolic_flops": "FLOP", "matrix_flops_per_cycle": "FLOP", "time_between_failures": "s", "checkpoint_interval": "s",
    "time_with_failures": "s", "seconds_for": "s", "one_axis": "s", "two_axes": "s", "interrupted_step": "s",
    "longest_prefill": "s", "transfer_seconds": "s", "prompt_wait": "s", "break_even_bandwidth": "bytes/s",
    "usd_per_million": "USD", "cache_over_flops": "", "bubble": "s",
}  # fmt: skip
"""The unit of a function's result; what is not here is a bare number (tokens, chips, a share) or has parts."""
ENDINGS = {"_seconds": "s", "_bytes": "bytes", "_bandwidth": "bytes/s", "_flops": "FLOP", "_usd": "USD"}
"""Units that the end of a function's name says, where it is not above."""
PARTS: dict[str, str] = {
    "DecodeTimes": "s", "Seconds": "s", "LayerTimes": "s", "SwitchTraffic": "bytes", "PassTimes": "s",
    "Cost.intensity": "FLOP/byte", "LayerTimes.ratio": "", "BestSplit2D.seconds": "s", "Cost.total_flops": "FLOP", "Cost.bytes": "bytes", "Cost.flops": "FLOP", "Cost.wire": "bytes", "FatTree.per_node": "bytes/s",
    "SwitchTier.bandwidth": "bytes/s", "SwitchTier.child_bandwidth": "bytes/s", "SwitchTier.per_chip": "bytes/s",
    "SwitchTier.link": "bytes/s", "SwitchTier.link_bandwidth": "bytes/s", "SwitchTier.switch_bandwidth": "bytes/s",
    "TreeSwitch.link": "bytes/s",
}  # fmt: skip
"""The unit of a part of a result, by the kind of the result and the part, or for all of its parts."""
METHODS: dict[str, tuple[str, ...]] = {
    "Cost": ("intensity",), "LayerTimes": ("network", "ratio", "lower", "upper", "bound"),
}  # fmt: skip
"""Parts that the library works out by a method."""
TOLD: dict[str, tuple[str, ...]] = {"SwitchTier": ("total", "children", "child_links", "child_bandwidth", "per_chip")}
"""Parts that a thing is told with where several of it are the part of a result."""
REGIMES = {"ep_width": "ep_regime"}
"""Functions of the same arguments that say which case of a formula was taken."""
TAKEN: dict[str, str] = {
    "seconds": "s", "step": "s", "target": "s", "draft": "s", "cache": "bytes", "cache_per_token": "bytes", "memory": "bytes",
    "volume": "bytes", "reserved": "bytes", "size": "", "flops": "FLOP", "peak": "FLOP/s", "link": "bytes/s", "hop": "s",
    "clock": "/s", "rate": "FLOP/s", "advertised": "FLOP/s", "bisection": "bytes/s", "usd_per_chip_hour": "USD/h",
    "bytes_per_param": "bytes", "useful": "FLOP", "available": "FLOP", "interval": "s", "restart": "s", "save": "s",
    "prefill": "s", "tpot": "s", "loop": "s", "bandwidth": "bytes/s", "latency": "s", "tokens_per_second": "/s",
    "forward": "s", "backward": "s", "weight": "s",
}  # fmt: skip
"""The unit of a parameter, by its name; what is not here is a bare number, or a word."""
TAKEN_BY: dict[str, str] = {
    "counterpart.target": "", "hops.target": "", "disjoint_paths.target": "", "transfer_time.target": "", "free_bytes.weights": "bytes", "largest_batch.weights": "bytes", "pointwise_cost.flops": "",
    "chips_to_hold.size": "bytes", "all_gather.size": "bytes", "time_between_failures.rate": "/s",
    "checkpoint_interval.rate": "/s", "goodput.rate": "/s", "seconds_for.loop": "s", "one_axis.rate": "bytes/s",
    "two_axes.rate": "bytes/s", "best_two_axes.rate": "bytes/s", "pool_ratio.prefill": "s", "interrupted_step.prefill": "s", "longest_prefill.tpot": "s",
    "prompt_wait.prefill": "s", "transfer_seconds.size": "bytes", "transfer_seconds.bandwidth": "bytes/s",
    "transfer_seconds.latency": "s", "break_even_bandwidth.size": "bytes", "break_even_bandwidth.prefill": "s",
    "usd_per_million.tokens_per_second": "/s", "reduce_scatter.size": "bytes", "all_reduce.size": "bytes",
    "all_to_all.size": "bytes", "permute.size": "bytes",
}  # fmt: skip
"""The same for a parameter of one function."""
LIBRARY_ONLY = (
    "Partial", "SCHEMES", "Scheme", "abstract_chip", "abstract_torus", "as_matrix", "best_split", "combine", "find_rules", "letters",
    "pass_times", "rank_splits", "spread_gather", "decode_attention_moves",
)  # fmt: skip
"""Closed forms that take or give what a calculator has no word for (matrices, meshes of letters): `ds.closed_forms` has them."""
