"""What a backward pass computes again is enough, and no line of it could be left out; a dim stays split as far as it
divides."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonscale.models import load_model
from dragonscale.models.activations import saved_tensors
from dragonscale.models.program import Section
from dragonscale.physics.notation import parse_array
from dragonscale.plan.recompute import recomputed_lines
from dragonscale.plan.rules import training_rules, undivided

MODELS = ("llama3-8b", "gemma2-9b", "mixtral-8x7b", "deepseek-v3", "qwen3-next-80b-a3b", "gpt-oss-120b")
POLICIES = ("block", "matmuls", "selective")
LINEAR = ("add", "bias", "cache", "lookup", "join", "dispatch", "combine")
"""Their gradients are sums or moves of what comes back."""

Value = tuple[str, int]
"""A tensor by its name and the line that wrote it; -1: it came from outside."""


def sections() -> Iterator[tuple[str, Section]]:
    for name in MODELS:
        for section in load_model(name).program().sections:
            if "block" in section.name:
                yield name, section


def read_by(section: Section) -> list[list[Value]]:
    """The values that each line reads."""
    written: dict[str, int] = {}
    found = []
    for line, op in enumerate(section.ops):
        found.append([(array.name, written.get(array.name, -1)) for array in op.inputs])
        if op.output is not None:
            written[op.output.name] = line
    return found


def needed(section: Section) -> set[Value]:
    """What gradients read. Moving tokens to experts and back is linear in them, but not in the router's choice; and
    results that something was added to behind the last matmul are weighted where they are added up."""
    found: set[Value] = set()
    reads = read_by(section)
    for line, op in enumerate(section.ops):
        if op.function not in LINEAR:
            found |= set(reads[line])
        elif op.function == "dispatch":
            found |= set(reads[line][1:])
        elif op.function == "combine":
            name, writer = reads[line][0]
            found |= {(name, writer)} if section.ops[writer].function != "einsum" else set()
    return found


def is_enough(section: Section, lines: frozenset[int], kept: set[str]) -> bool:
    """Whether lines that run in order find what they read, and every gradient then finds what it needs."""
    reads, there = read_by(section), set[Value]()

    def present(value: Value) -> bool:
        return value[1] < 0 or value[0] in kept or value in there

    for line in sorted(lines):
        if not all(map(present, reads[line])):
            return False
        output = section.ops[line].output
        if output is not None:
            there.add((output.name, line))
    return all(map(present, needed(section)))


@pytest.mark.parametrize("policy", POLICIES)
def test_lines_that_run_again_are_enough_and_none_is_idle(policy: str) -> None:
    for name, section in sections():
        kept = {array.name for array in saved_tensors(section, policy)} if policy != "block" else set()
        lines = recomputed_lines(section, policy)
        assert is_enough(section, lines, kept), (name, section.name)
        for line in lines:
            assert not is_enough(section, lines - {line}, kept), (name, section.name, section.ops[line])


@given(size=st.integers(1, 96), ways=st.tuples(*[st.integers(1, 6)] * 3))
def test_a_dim_keeps_the_most_axes_by_which_it_divides(size: int, ways: tuple[int, int, int]) -> None:
    """Axes are taken off the minor end until what is left divides."""
    rules, weight = training_rules(), parse_array("Wg[d,f]")
    axes = dict(zip(("fsdp", "expert", "context"), ways, strict=True))
    dims = {"d": size, "f": 1}
    fitted = replace(rules, undivided=undivided(rules, [weight], dims, axes | {"tensor": 1}))
    fits = [0, *(count for count, parts in enumerate(accumulate(ways, mul), 1) if size % parts == 0)]
    assert fitted.optimizer_state(weight).dim("d").axes == tuple(axes)[: max(fits)]
