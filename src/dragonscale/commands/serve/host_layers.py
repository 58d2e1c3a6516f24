"""Layers that flags of llama.cpp leave in the host's memory, as settings of the engine."""

from dataclasses import replace

from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.errors import InputError
from dragonscale.models.transformer import Transformer
from dragonscale.serving.engine.engine import engines

SPLITTING = "llama.cpp"


def with_host_layers(question: ServeQuestion, engine: str, model: Transformer) -> ServeQuestion:
    """The question with --gpu-layers and --n-cpu-moe as settings of its engine; llama.cpp is it where none is named."""
    if question.gpu_layers is None and question.n_cpu_moe is None:
        return question
    engine = engine or SPLITTING
    name = engine.partition(",")[0]
    if name != SPLITTING and (name not in engines() or engines()[name].base != SPLITTING):
        raise InputError(
            f"--gpu-layers and --n-cpu-moe leave layers to the CPU as llama.cpp does, and the engine is {name}; take "
            f"--engine {SPLITTING}."
        )
    layers = sum(section.repeat for section in model.program().sections if section.name not in ("embed", "head"))
    in_host = {"layers": 0, "expert_layers": min(question.n_cpu_moe or 0, layers)}
    if question.gpu_layers is not None:
        in_host["layers"] = max(layers - question.gpu_layers, 0)
    settings = [f"offload.{group}={count}" for group, count in in_host.items() if count]
    return replace(question, engine=",".join([engine, *settings]), gpu_layers=None, n_cpu_moe=None)
