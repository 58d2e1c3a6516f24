"""Whether a `vllm serve` command is meant for TPUs: by its environment, its image, its connector, or what an export
keeps."""

from dragonscale.exports.source import Source
from dragonscale.exports.terms import load_terms

TERMS = load_terms("vllm-tpu")

VARIABLES = TERMS.lists["variables"]
WORDS = ("sharding_strategy", "qwix", "TPUConnector", "vllm-tpu:", "vllm/vllm-tpu")


def is_tpu(source: Source) -> bool:
    """Whether a text has a mark of tpu-inference."""
    if str(source.kept.get("engine", "")):
        return str(source.kept["engine"]).startswith("vllm-tpu")
    variables = {name for command in source.commands for name in command.env}
    return bool({*VARIABLES} & variables) or any(word in source.text for word in WORDS)
