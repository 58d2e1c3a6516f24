"""One transfer, several events; one instruction, several kernels: their work is counted once.

XLA splits a transfer into a `-start`, which only asks for it, and a `-done`, which waits for it; a TPU's profile may
have the transfer itself as well, on a track of its own. The wait is time of whatever is waited for, so a `-done` has
the kind, part and phase of its start. Bytes are counted once: with the transfer where it is recorded, else with the
start.

A library may also run an instruction as several kernels (a memset, the attention, a sum over heads), and a profile says
of each which instruction it belongs to. FLOPs and bytes are the instruction's; they stay with the kernel that takes
most of its time.

When every op has said what it can, collectives without a place, phases of an engine and programs that are no model are
left. A program without parts of a model is told by its own name: that is what its author will look for. In one that has
them, work in the body of the loop over layers that belongs to no part is the block's.
"""

import re
from collections import defaultdict

import msgspec
import numpy as np

from dragonscale.evidence.profiles.device_work import TRAVELS
from dragonscale.evidence.profiles.hlo_roles import HloReader
from dragonscale.evidence.profiles.recording import OpText, Recording
from dragonscale.evidence.profiles.roles import PROGRAM, OpRole
from dragonscale.evidence.profiles.work_by_shapes import attention_dims

_DONE = re.compile(r"-done(\.\d+)?$")
_START = re.compile(r"-start(\.\d+)?$")
_STARTED = re.compile(r"%([\w.\-]*-start[\w.\-]*)\)?")


def with_waits(recording: Recording, roles: list[OpRole]) -> list[OpRole]:
    """The roles, each `-done` with that of its start."""
    starts = {(op.module, op.name): number for number, op in enumerate(recording.ops) if _START.search(op.name)}
    found = list(roles)
    for number, op in enumerate(recording.ops):
        if not _DONE.search(op.name):
            continue
        named = _STARTED.search(op.text)
        start = starts.get((op.module, named[1] if named else op.name.replace("-done", "-start")))
        if start is not None:
            role, own = roles[start], roles[number]
            taken = {name: getattr(role, name) or getattr(own, name) for name in ("kind", "section", "phase", "group")}
            found[number] = msgspec.structs.replace(own, what=role.what, **taken)
    return found


def counted_events(recording: Recording, roles: list[OpRole], events: np.ndarray) -> np.ndarray:
    """Which of some events count for FLOPs and bytes, as a mask: of a transfer with several events only one does."""
    ops, tracks = recording.events.op[events], recording.events.track[events]
    beside = np.array([track.kind == "async" for track in recording.tracks] or [False])[tracks]
    flying = np.zeros(len(recording.ops), bool)
    flying[ops[beside]] = True
    names = {recording.ops[one].name for one in np.unique(ops[beside]).tolist()}
    never = np.zeros(len(recording.ops), bool)
    for number, op in enumerate(recording.ops):
        if _DONE.search(op.name):
            never[number] = True
        elif _START.search(op.name) and not flying[number]:
            # a start alone says nothing of a transfer's rate; a collective's bytes are still worth knowing
            never[number] = _START.sub(r"\1", op.name) in names or roles[number].kind not in TRAVELS
    return np.where(flying[ops], beside, ~never[ops])


def worked_once(recording: Recording, roles: list[OpRole]) -> list[OpRole]:
    """The roles, with the work of each instruction at one of its kernels."""
    time = np.bincount(recording.events.op, recording.events.duration, len(recording.ops))
    kernels: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, (op, role) in enumerate(zip(recording.ops, roles, strict=True)):
        # only where the work was read off the program: elsewhere `caller` is an operator that runs for many kernels
        if op.caller and op.module and role.by_program:
            kernels[op.module, op.caller].append(number)
    found = list(roles)
    for some in kernels.values():
        main = max(some, key=lambda one: time[one])
        for one in some:
            if one != main:
                found[one] = msgspec.structs.replace(roles[one], flops=0.0, hbm_bytes=0.0, wire_bytes=None)
    _once_an_operator(recording, found, time)
    return found


def _once_an_operator(recording: Recording, roles: list[OpRole], time: np.ndarray) -> None:
    """Bytes by an operator's shapes are those of all its kernels (a norm's backward pass has one for each gradient):
    the longest has them."""
    kernels: dict[tuple[str, str, tuple[str, ...]], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, (op, role) in enumerate(zip(recording.ops, roles, strict=True)):
        if op.shapes and role.kind in ("elementwise", "copy", "reduction") and role.hbm_bytes and not op.module:
            kernels[op.caller, op.scope, op.shapes][op.name].append(number)
    for names in kernels.values():
        main = max(names, key=lambda name: time[names[name]].sum())
        for name, some in names.items():
            for one in some if name != main else ():
                roles[one] = msgspec.structs.replace(roles[one], hbm_bytes=0.0)


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
    carried = (_carried(op, role, reader) if op.module in training else "" for op, role in pairs)
    return [
        _complete(op, role, each, op.module in modelled, served.get(op.module, ""))
        for (op, role), each in zip(pairs, carried, strict=True)
    ]


def _complete(op: OpText, role: OpRole, carried: str, modelled: bool, served: str) -> OpRole:
    if not role.kind:
        return role
    section, phase, why = role.section or carried, role.phase, role.why
    if carried and not role.section:
        phase = phase or ("gradient" if section == "gradients" else "")
    if not section and op.module:
        block = modelled and ("/body/" in op.scope or role.kind == "control")
        section = "block" if block else op.module.split("(", 1)[0]
        why = (*why, PROGRAM)
    if not phase and role.kind not in ("host", "control"):
        phase = "update" if section == "optimizer" else "forward" if section in _MODEL or section == "loss" else ""
    if served and phase == "forward":
        phase = served
    return msgspec.structs.replace(role, section=section, phase=phase, why=why)


def _carried(op: OpText, role: OpRole, reader: HloReader) -> str:
    """What a collective without a place carries in training: where the program is at hand, it has to have a weight's
    sizes."""
    carried, program = _CARRIED.get(role.kind, ""), reader.program(op.module)
    if program is None or not carried:
        return carried
    if carried == "gradients":
        return carried if role.phase == "gradient" else ""
    return carried if not program.weights.isdisjoint(reader.operands(op)) else ""


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
