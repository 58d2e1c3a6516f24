"""The GPU that XLA compiles for, described instead of present.

The `jax-cuda12-plugin` wheel holds the whole compiler. It asks the driver what the GPU is like; given a *target config*
it needs neither a GPU nor a driver. That text is made from the chip's own file (SMs, clock, memory) and from the limits
that CUDA's programming guide lists for its compute capability. JAX reads its environment once, so a process that
compiles starts with `ENVIRONMENT` and stays apart from others.
"""

import math
import tomllib
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError
from dragonscale.physics.hardware import Chip

_TARGETS = tomllib.loads(Path(__file__).with_name("targets.toml").read_text("utf-8"))
_TABLE = _TARGETS["gpu"]
FAST = tuple(_TABLE["fast"])
"""Kernels compiled quickly and badly; collectives do not change."""
GPU = (*_TABLE["flags"], *FAST)
ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join(GPU), "TF_CPP_MIN_LOG_LEVEL": "3"}
CAPABILITIES: dict[str, list[int]] = _TABLE["capabilities"]
"""The compute capability, major and minor, and the bytes of shared memory of an SM."""
RESERVED = 1024
"""Bytes that the runtime keeps of an SM's shared memory for each block."""


def compiles_for(chip: Chip) -> bool:
    """Whether XLA's compilers can be told of a chip that is not there.

    >>> from dragonscale.physics.hardware import load_chip
    >>> [compiles_for(load_chip(name)) for name in ("h100", "b200", "mi300x", "v5p", "h100+nvlink=2x")]
    [True, False, False, True, True]
    """
    tpus = (*_TARGETS["tpu"]["generations"], *_TARGETS["tpu"]["aliases"])
    return chip.kin in (CAPABILITIES if chip.kind == "gpu" else tpus)


def target_config(chip: Chip) -> str:
    """The text proto of XLA's `GpuTargetConfigProto` for a chip.

    >>> from dragonscale.physics.hardware import load_chip
    >>> "core_count: 132" in target_config(load_chip("h100"))
    True
    """
    if chip.kind != "gpu":
        raise InputError(f"XLA's GPU compiler cannot compile for {chip.title}; choose a GPU.")
    if chip.kin not in CAPABILITIES:
        known = ", ".join(CAPABILITIES)
        raise InputError(f"XLA's GPU compiler can be told about {known} without having one, not about {chip.name}.")
    major, minor, shared = CAPABILITIES[chip.kin]
    device = _TABLE["limits"] | {
        "shared_memory_per_core": shared,
        "shared_memory_per_block_optin": shared - RESERVED,
        "core_count": int(chip.structure["sms"]),
        "fpus_per_core": int(chip.structure["alus_per_sm"]),
        "memory_bandwidth": int(chip.hbm.bandwidth or 0),
        "l2_cache_size": int(chip.memory["l2"].capacity),
        "clock_rate_ghz": chip.structure["clock"] / 1e9,
        "device_memory_size": int(chip.visible),
    }
    cudnn, cuda = _TABLE["cudnn"], _TABLE["cuda"]
    fields = "\n".join(f"  {name}: {value}" for name, value in device.items())
    return (
        f"gpu_device_info {{\n{fields}\n  cuda_compute_capability {{ major: {major} minor: {minor} }}\n}}\n"
        f'platform_name: "CUDA"\ndevice_description_str: "{chip.title}"\n'
        f"dnn_version_info {{ major: {cudnn[0]} minor: {cudnn[1]} }}\n"
        f"runtime_version {{ major: {cuda[0]} minor: {cuda[1]} }}\n"
    )


def mark_hosted(lowered: Any, places: list[int]) -> None:
    """Say of arguments of a lowered program, and of the results at the same places, that they lie in the host's memory:
    GPUs that are only described list no memories, and JAX drops what shardings say of them."""
    from jax.extend.mlir import ir

    module = lowered.compiler_ir("stablehlo")
    main = next(each for each in module.body.operations if str(each.attributes["sym_name"]) == '"main"')
    with module.context:
        kind = ir.StringAttr.get("pinned_host")
        for side in ("arg_attrs", "res_attrs"):
            every = list(main.attributes[side])
            for place in places:
                known: Any = {each.name: each.attr for each in every[place]}
                every[place] = ir.DictAttr.get(known | {"mhlo.memory_kind": kind})
            main.attributes[side] = ir.ArrayAttr.get(every)


def devices(chip: Chip, count: int) -> list[Any]:
    """As many GPUs to compile for, in whole nodes."""
    try:
        from jax.experimental import topologies
    except ImportError:
        raise InputError("Compiling needs JAX; install dragonscale[gpu-compiler].") from None
    node = min(count, chip.host_chips)
    shape, config = f"1x{math.ceil(count / node)}x{node}", target_config(chip)
    try:
        found = topologies.get_topology_desc("", "cuda", target_config=config, topology=shape)
    except Exception as error:
        how = f"install dragonscale[gpu-compiler] and start with {ENVIRONMENT}"
        raise InputError(f"XLA's GPU compiler did not start ({error}); {how}.") from error
    return list(found.devices[:count])
