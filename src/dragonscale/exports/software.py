"""What writes and reads each target: trainers and engines, launchers, load generators.

A kind is imported when the first of it is asked for: a question about a plan needs none of them.
"""

import functools
from collections.abc import Mapping
from typing import Any, Protocol

from dragonscale.exports.imported import Given, Imported, Source
from dragonscale.exports.runs import Run
from dragonscale.exports.target import Target
from dragonscale.exports.written import WrittenFiles


class Software(Protocol):
    """A trainer or an engine: it writes a run down, knows its own words, and reads them."""

    def write(self, run: Any) -> WrittenFiles: ...
    def recognises(self, source: Source) -> bool: ...
    def read(self, source: Source, given: Given) -> Imported: ...


class Launcher(Protocol):
    """What starts programs on hosts. `HOLDS_FILES` says that config files are inside its own, `ROUTES` what it
    sends requests to without anyone's help: the `replicas` of one program, or `programs` that name each other too."""

    @property
    def HOLDS_FILES(self) -> bool: ...
    @property
    def ROUTES(self) -> str: ...
    def launch(self, run: Run, target: Target, written: WrittenFiles) -> dict[str, str]: ...


@functools.cache
def _trainers() -> Mapping[str, Any]:
    from dragonscale.exports.trainers import accelerate, deepspeed, maxtext, megatron, megatron_bridge, torchtitan
    from dragonscale.exports.trainers.tuners import TUNERS

    own = {"megatron": megatron, "megatron-bridge": megatron_bridge, "torchtitan": torchtitan}
    return {**TUNERS, **own, "maxtext": maxtext, "deepspeed": deepspeed, "accelerate": accelerate}


@functools.cache
def _engines() -> Mapping[str, Any]:
    from dragonscale.exports.engines import dynamo, llamacpp, llm_d, sgl_jax, sglang, trtllm, vllm
    from dragonscale.exports.engines.vllm import tpu

    own = {"vllm": vllm, "vllm-tpu": tpu, "sglang": sglang, "sgl-jax": sgl_jax, "trtllm": trtllm}
    return {**own, "dynamo": dynamo, "llm-d": llm_d, "llamacpp": llamacpp}


@functools.cache
def _launchers() -> Mapping[str, Launcher]:
    from dragonscale.exports.launchers import kubernetes, shell, skypilot, slurm

    return {"shell": shell, "slurm": slurm, "kubernetes": kubernetes, "skypilot": skypilot}


def software(target: Target) -> Software:
    """What writes and reads a trainer or an engine."""
    return (_trainers if target.kind == "training" else _engines)()[target.name]


def launcher(target: Target) -> Launcher:
    """What writes the files of a launcher."""
    return _launchers()[target.name]
