"""The TPU slice that XLA compiles for, described instead of present.

The `libtpu` wheel holds the whole compiler and takes any topology by name. It is made for x86-64 Linux only, and its
licence is not an open one, so it is an optional extra. Three things have to be said that a real slice would know: which
axes close into rings (the compiler assumes none), that a v4 chip is one device (it would see two cores), and the order
of the devices (they come host by host).
"""

import tomllib
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError
from dragonscale.physics.hardware import Slice

_TABLE = tomllib.loads(Path(__file__).with_name("targets.toml").read_text("utf-8"))["tpu"]
ENVIRONMENT: dict[str, str] = _TABLE["environment"]
CANONICAL: dict[str, str] = _TABLE["canonical"]
"""Plain collectives, nothing decomposed or fused: for bytes and FLOPs."""
GENERATIONS = tuple(_TABLE["generations"])
"""The compiler's names."""
CLOCKS: dict[str, float] = _TABLE["clocks"]
"""Cycles a second of the core that estimated cycles count, as the compiler logs them."""


def generation(on: Slice) -> str:
    """The compiler's name of a slice's chip."""
    name = _TABLE["aliases"].get(on.chip.kin, on.chip.kin)
    if name not in GENERATIONS:
        known = ", ".join(GENERATIONS)
        raise InputError(f"XLA's TPU compiler does not know the chip {on.chip.name}; it knows {known}.")
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

    def place(device: Any) -> tuple[Any, ...]:
        return getattr(device, "slice_index", 0) or 0, device.coords[::-1], getattr(device, "core_on_chip", 0)

    return sorted(found.devices, key=place)
