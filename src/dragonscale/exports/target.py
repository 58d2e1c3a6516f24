"""The targets: what plans can be written for and read from.

>>> target_named("megatron").title, target_named("megatron-lm").name
('Megatron-LM', 'megatron')
>>> [target.name for target in of_kind("launcher")]
['shell', 'slurm', 'kubernetes', 'skypilot']
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from dragonscale.errors import unknown
from dragonscale.exports.keys import KeyTable, load_keys


@dataclass(frozen=True)
class Target:
    """One target. `kind` is `training`, `serving`, `launcher` or `load`; `runs` are the stacks or engines whose plans
    it runs, the one that is meant without a word first; `keys` names its table of keys; `module` has `write`, `read`
    and `recognises` (a trainer or an engine), `launch` (a launcher) or `write` alone (a load generator)."""

    name: str
    kind: str
    title: str
    module: str
    runs: tuple[str, ...] = ()
    keys: str = ""
    also: tuple[str, ...] = ()

    def load(self) -> ModuleType:
        return import_module(f"dragonscale.exports.{self.module}")

    def key_table(self) -> KeyTable:
        return load_keys(self.keys or self.name)

    @property
    def version(self) -> str:
        """The released version whose names are written."""
        return self.key_table().version


_MEGATRON = ("megatron-core", "megatron-bridge", "megatron-2024", "nemo")

TARGETS: Mapping[str, Target] = {
    target.name: target
    for target in (
        Target(
            "megatron",
            "training",
            "Megatron-LM",
            "trainers.megatron",
            _MEGATRON,
            also=("megatron-lm", "megatron-core", "mcore"),
        ),
        Target(
            "megatron-bridge",
            "training",
            "Megatron-Bridge",
            "trainers.megatron_bridge",
            ("megatron-bridge", *_MEGATRON),
            also=("nemo", "bridge"),
        ),
        Target("torchtitan", "training", "torchtitan", "trainers.torchtitan", ("torchtitan", "torch-fsdp")),
        Target("maxtext", "training", "MaxText", "trainers.maxtext", ("maxtext", "xla-gpu")),
        Target("deepspeed", "training", "DeepSpeed", "trainers.deepspeed", ("deepspeed",)),
        Target(
            "accelerate",
            "training",
            "Hugging Face accelerate",
            "trainers.accelerate",
            ("hf-fsdp", "hf"),
            also=("fsdp2", "hf", "trainer"),
        ),
        Target("vllm", "serving", "vLLM", "engines.vllm", ("vllm", "vllm-ep")),
        Target(
            "vllm-tpu",
            "serving",
            "vLLM on TPUs",
            "engines.vllm_tpu",
            ("vllm-tpu",),
            keys="vllm",
            also=("tpu-inference",),
        ),
        Target("sglang", "serving", "SGLang", "engines.sglang", ("sglang", "sglang-ep")),
        Target("sgl-jax", "serving", "SGLang on TPUs", "engines.sgl_jax", ("sgl-jax",), also=("sglang-jax",)),
        Target(
            "trtllm",
            "serving",
            "TensorRT-LLM",
            "engines.trtllm",
            ("trtllm", "trtllm-ep"),
            also=("tensorrt-llm", "trtllm-serve"),
        ),
        Target(
            "dynamo",
            "serving",
            "NVIDIA Dynamo",
            "engines.dynamo",
            ("vllm", "vllm-ep", "sglang", "sglang-ep", "trtllm", "trtllm-ep"),
        ),
        Target("llm-d", "serving", "llm-d", "engines.llm_d", ("vllm", "vllm-ep"), keys="vllm", also=("llmd",)),
        Target(
            "llamacpp",
            "serving",
            "llama.cpp",
            "engines.llamacpp",
            ("generic",),
            also=("llama.cpp", "llama-server", "llama-cpp"),
        ),
        Target("shell", "launcher", "a shell script", "launchers.shell", also=("torchrun", "bash")),
        Target("slurm", "launcher", "Slurm", "launchers.slurm", also=("sbatch",)),
        Target("kubernetes", "launcher", "Kubernetes", "launchers.kubernetes", also=("k8s", "gke", "jobset", "lws")),
        Target("skypilot", "launcher", "SkyPilot", "launchers.skypilot", also=("sky",)),
        Target("vllm-bench", "load", "vllm bench serve", "loads.vllm_bench", ("vllm",)),
        Target("sglang-bench", "load", "sglang.bench_serving", "loads.sglang_bench", ("sglang",)),
        Target("genai-perf", "load", "AIPerf", "loads.genai_perf", ("vllm",), keys="aiperf", also=("aiperf",)),
    )
}
_SPELT = {spelling: target for target in TARGETS.values() for spelling in (target.name, *target.also)}


def target_named(name: str) -> Target:
    """A target by any of its names."""
    found = _SPELT.get(name.strip().lower().replace("_", "-"))
    if found is None:
        raise unknown("target of an export called", name, TARGETS)
    return found


def of_kind(kind: str) -> list[Target]:
    """The targets of a kind, in order."""
    return [target for target in TARGETS.values() if target.kind == kind]


def software_for(runs: str, kind: str) -> Target | None:
    """The target that runs a stack or an engine; None where there is none (our own program, engines of papers)."""
    return next((target for target in of_kind(kind) if runs in target.runs[:4]), None)
