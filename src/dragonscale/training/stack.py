"""What a software stack does with the same plan: what it overlaps, what it fuses, what it keeps.

These few constants are the only part of an expectation that is not measured on kernels. There is one set for each
stack, declared with its reasons in `stacks.toml`, and the same for every run of that stack.
"""

import functools
import tomllib
from importlib import resources

import msgspec

from dragonscale.errors import unknown


class Stack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parts between 0 and 1 say how much of a transfer can hide under compute.

    `pointwise_passes`: how often a pointwise line reads and writes its tensors (1 if each is one fused kernel).
    `flash`: whether attention is one kernel; if not, `square_bytes` are moved for each score. `attention`: seconds of
    its attention kernel over those of the profile's. `loss_bytes`: bytes moved for each logit by the loss.
    `cast_passes`: how much of the casts to narrow formats is not fused into other kernels. `host_seconds`: the host's
    time to issue one kernel (0 with graphs). `contention`: how much of a hidden transfer still slows the kernels above
    it. `skew`: tokens of the busiest expert over the mean. `route_passes`: how often tokens are copied on their way to the experts and back, over
    once each way. `grouped`: seconds of the experts' products over those of as many
    plain ones. `expert_launches`: kernels issued for each expert of a grouped product. `expert_dedup`: whether a token
    goes only once to each chip (or node) that has several of its experts. `balanced`: whether the last pipeline stage
    may have fewer layers to make room for the head. `straggle`: slowdown for each doubling of the machines.
    `legacy_attention`: its attention kernel was written for chips before Hopper. `matmul`: seconds of its products over
    those of the profile's. `selective_matmuls`: the part of its products that selective recomputation
    runs again. `weight_copies`, `accumulate`: bytes moved per weight and microbatch to unpack gathered
    weights and to add up gradients. `update_passes`: how often the optimizer moves its state. `narrow_gathers`: whether weights travel in
    the plan's narrow format. `reduce_bytes`: bytes of a gradient on the wire; `gradient_bytes`, `master_bytes`: in memory. `narrow_weights`: whether
    weights and what their products read are kept in the narrow format only. `kept_copies`: activations kept over those
    that the gradients need. `prefetch`: layers whose weights are gathered at once. `logit_bytes`: bytes held for each
    logit (bf16, fp32, their gradients). `reserve_bytes`: the framework's and the network's own.
    """

    name: str = "generic"
    why: str = ""
    base: str = ""
    tensor_overlap: float = 0.3
    context_overlap: float = 0.7
    expert_overlap: float = 0.0
    weight_overlap: float = 0.9
    gradient_overlap: float = 0.8
    send_overlap: float = 0.9
    pointwise_passes: float = 1.0
    flash: bool = True
    attention: float = 1.0
    legacy_attention: bool = False
    matmul: float = 1.0
    selective_matmuls: float = 0.0
    weight_copies: float = 0.0
    accumulate: float = 6.0
    update_passes: float = 1.0
    square_bytes: float = 9.0
    loss_bytes: float = 16.0
    cast_passes: float = 1.0
    host_seconds: float = 0.0
    contention: float = 0.1
    skew: float = 1.0
    route_passes: float = 1.0
    grouped: float = 1.0
    expert_launches: float = 0.0
    expert_dedup: bool = False
    balanced: bool = False
    step_seconds: float = 0.0
    straggle: float = 0.002
    reduce_bytes: float = 4.0
    gradient_bytes: float = 4.0
    master_bytes: float = 4.0
    narrow_gathers: bool = False
    narrow_weights: bool = False
    kept_copies: float = 1.0
    prefetch: float = 2.0
    logit_bytes: float = 12.0
    reserve_bytes: float = 4e9


@functools.cache
def stacks() -> dict[str, Stack]:
    """The stacks that are known, by name; a stack with a `base` starts from that one's constants."""
    text = (resources.files("dragonscale.training") / "stacks.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    found: dict[str, Stack] = {}
    for name, table in tables.items():
        base = tables.get(table.get("base", ""), {})
        found[name] = msgspec.convert({**base, "name": name, **table}, Stack)
    return found


def load_stack(name: str) -> Stack:
    """A stack by name.

    >>> load_stack("megatron-core").gradient_bytes
    2.0
    """
    if name not in stacks():
        raise unknown("software stack", name, stacks())
    return stacks()[name]
