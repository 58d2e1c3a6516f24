"""The blocks of a KV cache that recurrent layers share with attention, as vLLM deals them out.

Layers are put into groups of as many layers of one kind, and a block is a page of each layer of one group; all pages
are as large as the state of a recurrent layer, so attention's hold as many tokens as fit in that. A sequence takes one
block of each recurrent group, and of each attention group as many as its tokens fill. The engine does not start if it
may have more sequences at once than there are blocks (vllm-project/vllm#38270).
"""

from dataclasses import dataclass

from dragonscale.physics.numbers import ceil_to, first_number
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.resident_memory import cache_lines

# Kinds of layers that are nearly as many make one size of group: the larger (v1/core/kv_cache_utils.py).
NEARLY_AS_MANY = 1.25

# Tokens of attention's pages are multiples of this (FlashAttention's kernel).
KERNEL_TOKENS = 16


@dataclass(frozen=True)
class StateBlocks:
    """Blocks of one rank: their `count`, the `tokens` of attention that one holds, and how many groups of each kind
    there are."""

    count: int
    tokens: int
    recurrent_groups: int
    attention_groups: int

    @property
    def longest_request(self) -> int:
        """Tokens of the longest request that all blocks hold."""
        return max(self.count - self.recurrent_groups, 0) // max(self.attention_groups, 1) * self.tokens


def state_blocks(deployment: Deployment, cache_bytes: float) -> StateBlocks | None:
    """The blocks that so many bytes of a chip hold; None of a model without recurrent layers, or of them alone."""
    layers = {section.name: section.repeat / deployment.plan.pipe for section in deployment.sections}
    states, tokens = dict[str, float](), dict[str, float]()  # bytes of a layer, by section
    for length, by_section in ((0.0, states), (1.0, tokens)):
        for line in cache_lines(deployment, length):
            layer_bytes = first_number(line.bytes) / first_number(layers[line.section])
            by_section[line.section] = by_section.get(line.section, 0.0) + layer_bytes
    # what grows with tokens is attention, even if it keeps a state too
    recurrent = [name for name, state in states.items() if state and tokens[name] <= state]
    attention = [name for name in tokens if name not in recurrent]
    if not recurrent or not attention:
        return None
    recurrent_layers = round(sum(first_number(layers[name]) for name in recurrent))
    attention_layers = round(sum(first_number(layers[name]) for name in attention))
    fewer, more = sorted((recurrent_layers, attention_layers))
    group = more if more < NEARLY_AS_MANY * fewer else fewer
    token_bytes = max(tokens[name] - states.get(name, 0.0) for name in attention)
    state_bytes = max(states[name] for name in recurrent)
    page_tokens = int(first_number(ceil_to(state_bytes / token_bytes, KERNEL_TOKENS)))
    return StateBlocks(
        count=int(cache_bytes / (group * page_tokens * token_bytes)),
        tokens=page_tokens,
        recurrent_groups=-(-recurrent_layers // group),
        attention_groups=-(-attention_layers // group),
    )
