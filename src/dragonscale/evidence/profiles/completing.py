"""What is left when every op has said what it can: collectives without a place, phases of an engine, programs that are
no model.

A program without parts of a model is told by its own name: that is what its author will look for. In one that has them,
work in the body of the loop over layers that belongs to no part is the block's.
"""

import re
from collections import defaultdict

import msgspec

from dragonscale.evidence.profiles.hlo_roles import HloReader
from dragonscale.evidence.profiles.recording import OpText, Recording
from dragonscale.evidence.profiles.roles import PROGRAM, OpRole
from dragonscale.evidence.profiles.work_by_shapes import attention_dims

_MODEL = frozenset(("attention", "mlp", "experts", "router", "embedding", "head", "norm", "block"))
_TRAINING = ("backward", "update", "gradient", "recompute")
_CARRIED = {"all_gather": "weights", "all_reduce": "gradients", "reduce_scatter": "gradients"}
"""What collectives without a place carry where a model is trained."""
_DECODES = re.compile(r"(?i)decode|paged_attention_v[12]|mmha|masked_multihead|flash_?mla|_stage1|unified_attention_3d")
_PREFILLS = re.compile(r"(?i)prefill|context_attention|extend_attention|context_?fmha")


def complete_roles(recording: Recording, roles: list[OpRole], reader: HloReader) -> list[OpRole]:
    """The roles with what the others say about them."""
    pairs = list(zip(recording.ops, roles, strict=True))
    training = {op.module for op, role in pairs if role.phase in _TRAINING}
    modelled = {op.module for op, role in pairs if role.section in _MODEL and op.module}
    served = _served(pairs, training, reader)
    return [
        _complete(
            op,
            role,
            _carried(op, role, reader) if op.module in training else "",
            op.module in modelled,
            served.get(op.module, ""),
        )
        for op, role in pairs
    ]


def _complete(op: OpText, role: OpRole, carried: str, modelled: bool, served: str) -> OpRole:
    if not role.kind:
        return role
    section, phase, why, confidence = role.section, role.phase, role.why, role.confidence
    if not section and carried:
        section, confidence = carried, "guess"
        phase = phase or ("gradient" if section == "gradients" else "")
    if not section and op.module:
        section = (
            "block" if modelled and ("/body/" in op.scope or role.kind == "control") else op.module.split("(", 1)[0]
        )
        why = (*why, PROGRAM)
    if not phase and role.kind not in ("host", "control"):
        phase = "update" if section == "optimizer" else "forward" if section in _MODEL or section == "loss" else ""
    if served and phase == "forward":
        phase = served
    return msgspec.structs.replace(role, section=section, phase=phase, why=why, confidence=confidence)


def _carried(op: OpText, role: OpRole, reader: HloReader) -> str:
    """What a collective without a place carries in training: where the program is at hand, it has to have a weight's
    sizes."""
    carried, program = _CARRIED.get(role.kind, ""), reader.program(op.module)
    if program is None or not carried:
        return carried
    weighs = (
        role.phase == "gradient"
        if carried == "gradients"
        else any(dims in program.weights for dims in reader.operands(op))
    )
    return carried if weighs else ""


def _served(pairs: list[tuple[OpText, OpRole]], training: set[str], reader: HloReader) -> dict[str, str]:
    """The phase of each program that serves: it decodes where every query is one token, it prefills where a cache is
    written for more."""
    queries: defaultdict[str, set[str]] = defaultdict(set)
    caches: set[str] = set()
    for op, role in pairs:
        if op.module in training or not role.kind:
            continue
        if role.what == "KV cache" or "/cache/" in op.scope:
            caches.add(op.module)
        if role.kind == "attention":
            queries[op.module].add(_asked(op, reader))
    found: dict[str, str] = {}
    for module, kinds in queries.items():
        if kinds == {"decode"}:
            found[module] = "decode"
        elif kinds == {"prefill"} and module in caches:
            found[module] = "prefill"
    return found


def _asked(op: OpText, reader: HloReader) -> str:
    """Whether an attention op has queries of one token, by its name or by the shapes of what it reads."""
    if _PREFILLS.search(op.name):
        return "prefill"
    if _DECODES.search(op.name):
        return "decode"
    dims = attention_dims(op, reader.operands(op))
    return "" if dims is None else "decode" if dims.tokens == 1 else "prefill"
