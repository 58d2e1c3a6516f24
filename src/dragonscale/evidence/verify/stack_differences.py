"""Where another stack's ledger differs from our own program's, line by line, and why.

What is compiled is our own program. A plan made for another stack is held against it switch by switch: starting from
our stack, each switch in which the other differs is set to the other's value, and the lines, bytes and FLOPs that this
changes are listed with the switch's meaning. At the end stands the other stack's own ledger.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from dragonscale.evidence.verify.planned import our_stack, training_job
from dragonscale.evidence.verify.records import StackDifference, explanations
from dragonscale.evidence.verify.request import Request
from dragonscale.plan.ledger import Ledger
from dragonscale.training.evaluation import judge_one
from dragonscale.training.plan_file import parse_plan
from dragonscale.training.stack import Stack, load_stack

SMALLEST = 1e-6
Sums = dict[tuple[str, str, str, str], float]


def stack_differences(request: Request, name: str) -> tuple[StackDifference, ...]:
    """Every line that a stack's switches change, with the switch; nothing for our own."""
    other = load_stack(name)
    if name == "dragonscale" or request.program != "train":
        return ()
    found: list[StackDifference] = []
    now = our_stack(request)
    before = _sums(_ledger(request, now))
    for switch, why in explanations("switches").items():
        then = _set(now, other, switch)
        if then == now:
            continue
        after = _sums(_ledger(request, then))
        found += _changed(before, after, switch, why)
        now, before = then, after
    return tuple(found)


def _ledger(request: Request, stack: Stack) -> Ledger:
    return judge_one(training_job(request, stack), parse_plan(request.plan)).ledger


def _set(stack: Stack, other: Stack, switch: str) -> Stack:
    """A stack with one switch, or one group of them, as another has it."""
    group, _, field = switch.partition(".")
    if not field:
        changes: dict[str, Any] = {group: getattr(other, group)}
        if group == "memory":  # what is held follows these too
            state = {name: getattr(other.state, name) for name in ("gradient_bytes", "master_bytes", "narrow_weights")}
            changes |= {"state": msgspec.structs.replace(stack.state, **state)}
            changes |= {"kernels": msgspec.structs.replace(stack.kernels, flash=other.kernels.flash)}
        return msgspec.structs.replace(stack, **changes)
    value = getattr(getattr(other, group), field)
    return msgspec.structs.replace(stack, **{group: msgspec.structs.replace(getattr(stack, group), **{field: value})})


def _sums(ledger: Ledger) -> Sums:
    """FLOPs and bytes sent by section, phase, what and kind over which axes; bytes held by part."""
    found: Sums = {}
    for line in ledger.lines:
        where = f" over {'+'.join(sorted(line.axes))}" if line.axes else ""
        for quantity in ("flops", "wire_bytes"):
            size = float(line.total(quantity))
            if size and (quantity != "flops" or "matmul" in line.kind or line.kind == "attention"):
                key = (quantity, line.section, line.phase, f"{line.what} ({line.kind}{where})")
                found[key] = found.get(key, 0.0) + size
    for held in ledger.held:
        key = ("hbm_bytes", held.section or "step", "memory", held.part)
        found[key] = found.get(key, 0.0) + float(held.bytes)
    return found


def _changed(before: Sums, after: Sums, switch: str, why: str) -> Iterator[StackDifference]:
    totals = {
        name: sum(size for key, size in before.items() if key[0] == name) or 1.0
        for name in ("flops", "wire_bytes", "hbm_bytes")
    }
    for key in {**before, **after}:
        ours, theirs = before.get(key, 0.0), after.get(key, 0.0)
        if abs(theirs - ours) > SMALLEST * totals[key[0]]:
            quantity, section, phase, what = key
            yield StackDifference(switch, why, quantity, section, phase, what, ours, theirs)
