"""vLLM on GPUs: `vllm serve`, one process for each host of a replica."""

from dragonscale.exports.engines.vllm import read_vllm, tpu
from dragonscale.exports.engines.vllm.read_vllm import recognises
from dragonscale.exports.engines.vllm.write_vllm import write
from dragonscale.exports.imported import Given, Imported, Source
from dragonscale.physics.hardware import parse_target
from dragonscale.training.plan.legality import family

__all__ = ["read", "recognises", "write"]


def read(source: Source, given: Given) -> Imported:
    """The plan of a command; one that is said to run on TPUs is tpu-inference's."""
    on_tpus = bool(given.slice) and family(parse_target(given.slice)[0]) == "tpu"
    return (tpu if on_tpus else read_vllm).read(source, given)
