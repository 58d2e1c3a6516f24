"""The TPU slice that XLA compiles for, described instead of present.

The `libtpu` wheel holds the whole compiler and takes any topology by name. It is made for x86-64 Linux only, and its
licence is not an open one, so it is an optional extra. Three things have to be said that a real slice would know: which
axes close into rings (the compiler assumes none), that a v4 chip is one device (it would see two cores), and the order
of the devices (they come host by host).
"""

from typing import Any

from dragonscale.errors import InputError
from dragonscale.physics.hardware import Slice

ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",  # no metadata server to ask
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_ACCELERATOR_TYPE": "v5litepod-16",  # with the two above: nothing on stderr, whatever is compiled for
    "TPU_LOG_DIR": "disabled",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # several compilers at once
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
CANONICAL = {
    "xla_optimization_level": "EFFORT_O0",
    "xla_jf_spmd_threshold_for_windowed_einsum_mib": "1000000",
    "xla_tpu_enable_async_collective_fusion": "false",
}
"""Plain collectives, nothing decomposed or fused: for bytes and FLOPs."""
GENERATIONS = ("v2", "v3", "v4", "v5e", "v5p", "v6e", "tpu7x")
"""The compiler's names."""
_ALIASES = {"v7x": "tpu7x", "ironwood": "tpu7x", "v7": "tpu7x"}
CLOCKS = {"v4": 1.05e9, "v5e": 1.5e9, "v5p": 1.75e9, "v6e": 1.75e9, "tpu7x": 1.9e9}
"""Cycles a second of the core that estimated cycles count, as the compiler logs them (libtpu 0.0.50)."""


def generation(on: Slice) -> str:
    """The compiler's name of a slice's chip."""
    name = _ALIASES.get(on.chip.kin, on.chip.kin)
    if name not in GENERATIONS:
        raise InputError(
            f"XLA's TPU compiler does not know the chip {on.chip.name}; it knows {', '.join(GENERATIONS)}."
        )
    return name


def topology(on: Slice) -> tuple[str, dict[str, Any]]:
    """The compiler's name of a slice and what else it is told.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> topology(parse_slice("v5p:4x4x4"))
    ('v5p:4x4x4', {'wrap': [True, True, True]})
    """
    name = generation(on)
    shape = "x".join(str(size) for size in on.shape)
    options: dict[str, Any] = {}
    if name == "v4":
        options["chip_config_name"] = "megacore"
    if any(on.wrap):
        options["wrap"] = [*on.wrap, *[False] * (3 - len(on.wrap))]
    if on.pods > 1:
        options["num_slices"] = on.pods
    if len(on.shape) == 2 and on.chips == 1:
        options["chips_per_host_bounds"] = [1, 1, 1]
    return f"{name}:{shape}", options


def devices(on: Slice) -> list[Any]:
    """The slice's devices in the order of their coordinates, the first axis fastest."""
    try:
        from jax.experimental import topologies
    except ImportError:
        raise InputError("Compiling needs JAX; install dragonscale[tpu].") from None
    name, options = topology(on)
    try:
        found = topologies.get_topology_desc(name, "tpu", **options)
    except Exception as error:
        raise InputError(f"XLA's TPU compiler did not start for {on}: {error}") from error
    return sorted(
        found.devices,
        key=lambda one: (getattr(one, "slice_index", 0) or 0, one.coords[::-1], getattr(one, "core_on_chip", 0)),
    )
