"""The reader of HLO text: every syntax of groups, every spelling of a collective, and no silence about what it cannot
read."""

import pytest

from dragonscale.errors import InputError
from dragonscale.evidence.xla.call_graph import executions
from dragonscale.evidence.xla.collectives import read_collectives
from dragonscale.evidence.xla.device_groups import axis_parts, moved_axes, replica_groups, spanned_axes
from dragonscale.evidence.xla.hlo_text import read_module

MESH = {"X": 2, "Y": 4}
GROUPS = {
    "{{0,1,2,3},{4,5,6,7}}": ("Y",),
    "{{0,4},{1,5},{2,6},{3,7}}": ("X",),
    "{{0,1,2,3,4,5,6,7}}": ("X", "Y"),
    "[2,4]<=[8]": ("Y",),
    "[4,2]<=[2,4]T(1,0)": ("X",),
    "[1,8]<=[8]": ("X", "Y"),
    "mesh['axis_0'=2,'axis_1'=4] {'axis_1'}": ("Y",),
    "mesh['axis_0'=2,'axis_1'=4] {'axis_0','axis_1'}": ("X", "Y"),
    "mesh['axis_0'=4,'axis_1'=2,'axis_2'=1], device_ids=([2,4]T(1,0)) {'axis_1'}": ("X",),
    "mesh['axis_0'=4,'axis_1'=2], device_ids=(0,4,1,5,2,6,3,7) {'axis_1'}": ("X",),
    "mesh['axis_0'=8] {'axis_0':(1)2}": ("X",),
    "mesh['axis_0'=8] {'axis_0':(2)4}": ("Y",),
}


@pytest.mark.parametrize(("text", "axes"), GROUPS.items())
def test_groups_in_every_syntax(text: str, axes: tuple[str, ...]) -> None:
    groups = replica_groups(text)
    assert sorted(device for group in groups for device in group) == list(range(8))
    assert spanned_axes(groups, MESH) == axes


def test_groups_inside_an_axis() -> None:
    pairs = replica_groups("[4,2]<=[8]")
    assert spanned_axes(pairs, MESH) is None
    parts = {part: size for axis in axis_parts(MESH).values() for part, size in axis.items()}
    assert spanned_axes(pairs, parts) == ("Y2",)
    assert moved_axes(((0, 4), (4, 0), (1, 1)), MESH) == ("X",)


@pytest.mark.parametrize("text", ["", "{0,1}", "[2,4]", "[2,4]<=[8]S(1)", "mesh[4] {'x'}", "mesh['a'=4] {'a':2}"])
def test_unknown_groups_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="in no form this reader knows"):
        replica_groups(text)


def module(*lines: str, before: str = "") -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"HloModule jit_f\n{before}\nENTRY %main (p: bf16[8,4]) -> bf16[8,4] {{\n{body}\n}}\n"


P, Q = "%p = bf16[8,4]{1,0} parameter(0)", "%q = f32[16]{0} parameter(1)"
SPELLINGS = {
    "all-gather": (
        [P, "ROOT %g = bf16[8,16]{1,0} all-gather(%p), replica_groups=[2,4]<=[8], dimensions={1}"],
        [("all_gather", 256, 4, 192)],
    ),
    "all-gather-start": (
        [
            P,
            "%s = (bf16[8,4]{1,0}, bf16[8,16]{1,0}) all-gather-start(%p), replica_groups=[2,4]<=[8], dimensions={1}",
            "ROOT %d = bf16[8,16]{1,0} all-gather-done(%s)",
        ],
        [("all_gather", 256, 4, 192)],
    ),
    "combined all-gather": (
        [
            P,
            Q,
            (
                "%s = ((bf16[8,4]{1,0}, f32[16]{0}), (bf16[8,16]{1,0}, f32[64]{0})) all-gather-start(%p, %q), "
                "replica_groups=[2,4]<=[8]"
            ),
            "ROOT %d = (bf16[8,16]{1,0}, f32[64]{0}) all-gather-done(%s)",
        ],
        [("all_gather", 256, 4, 192), ("all_gather", 256, 4, 192)],
    ),
    "combined all-reduce": (
        [
            P,
            Q,
            "ROOT %r = (bf16[8,4]{1,0}, f32[16]{0}) all-reduce(%p, %q), replica_groups={{0,1},{2,3}}, to_apply=%add",
        ],
        [("all_reduce", 64, 2, 64), ("all_reduce", 64, 2, 64)],
    ),
    "all-reduce-start": (
        [
            P,
            "%s = bf16[8,4]{1,0} all-reduce-start(%p), replica_groups=[1,8]<=[8], to_apply=%add",
            "ROOT %d = bf16[8,4]{1,0} all-reduce-done(%s)",
        ],
        [("all_reduce", 64, 8, 112)],
    ),
    "reduce-scatter-start": (
        [
            P,
            (
                "%s = ((bf16[8,4]{1,0}), bf16[2,4]{1,0}) reduce-scatter-start(%p), replica_groups=[2,4]<=[8], "
                "dimensions={0}, to_apply=%add"
            ),
            "ROOT %d = bf16[2,4]{1,0} reduce-scatter-done(%s)",
        ],
        [("reduce_scatter", 64, 4, 48)],
    ),
    "all-to-all of an array": (
        [P, "ROOT %a = bf16[8,4]{1,0} all-to-all(%p), replica_groups=[2,4]<=[8], dimensions={0}"],
        [("all_to_all", 256, 4, 48)],
    ),
    "all-to-all of a tuple": (
        [P, "ROOT %a = (bf16[8,4]{1,0}, bf16[8,4]{1,0}) all-to-all(%p, %p), replica_groups={{0,1},{2,3}}"],
        [("all_to_all", 256, 2, 64)],
    ),
    "collective-permute": (
        [P, "ROOT %c = bf16[8,4]{1,0} collective-permute(%p), source_target_pairs={{0,1},{1,0}}"],
        [("permute", 64, 2, 64)],
    ),
    "a tiled layout and metadata": (
        [
            "%p = bf16[8,4]{1,0:T(8,128)(2,1)S(1)} parameter(0)",
            (
                "ROOT %g = bf16[8,16]{1,0:T(8,128)(2,1)} all-gather(%p), replica_groups=[2,4]<=[8], "
                'metadata={op_name="jit(f)/all-reduce(x, y)={" source_line=3}'
            ),
        ],
        [("all_gather", 256, 4, 192)],
    ),
}


@pytest.mark.parametrize(("lines", "expected"), SPELLINGS.values(), ids=SPELLINGS)
def test_every_spelling(lines: list[str], expected: list[tuple]) -> None:
    found = read_collectives(module(*lines, before=ADD))
    assert [(each.kind, each.volume, each.size, each.wire_bytes) for each in found] == expected


ADD = """
%add (x: bf16[], y: bf16[]) -> bf16[] {
  %x = bf16[] parameter(0)
  %y = bf16[] parameter(1)
  ROOT %sum = bf16[] add(%x, %y)
}
"""
WRAPPED = """
%wrapped (w: bf16[8,4]) -> bf16[2,4] {
  %w = bf16[8,4]{1,0} parameter(0)
  ROOT %scatter = bf16[2,4]{1,0} reduce-scatter(%w), replica_groups=[2,4]<=[8], dimensions={0}, to_apply=%add
}
"""


def test_an_asynchronous_wrapper_counts_once() -> None:
    text = module(
        P,
        "%start = ((bf16[8,4]{1,0}), bf16[2,4]{1,0}) async-start(%p), calls=%wrapped",
        "%update = ((bf16[8,4]{1,0}), bf16[2,4]{1,0}) async-update(%start), calls=%wrapped",
        "ROOT %done = bf16[2,4]{1,0} async-done(%update), calls=%wrapped",
        before=ADD + WRAPPED,
    )
    (scatter,) = read_collectives(text)
    assert (scatter.kind, scatter.times, scatter.wire_bytes) == ("reduce_scatter", 1, 48)


LOOP = """
%body (arg: (s32[], bf16[8,8])) -> (s32[], bf16[8,8]) {
  %arg = (s32[], bf16[8,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%arg), index=0
  %x = bf16[8,8]{1,0} get-tuple-element(%arg), index=1
  %start = (bf16[8,8]{1,0}, bf16[32,8]{1,0}) all-gather-start(%x), replica_groups=[2,4]<=[8], dimensions={0}
  %done = bf16[32,8]{1,0} all-gather-done(%start)
  %cut = bf16[8,8]{1,0} slice(%done), slice={[0:8], [0:8]}
  ROOT %out = (s32[], bf16[8,8]{1,0}) tuple(%i, %cut)
}

%condition (arg.1: (s32[], bf16[8,8])) -> pred[] {
  %arg.1 = (s32[], bf16[8,8]{1,0}) parameter(0)
  ROOT %true = pred[] constant(true)
}
"""
WHILE = "ROOT %loop = (s32[], bf16[8,8]{1,0}) while(%p), condition=%condition, body=%body"


def test_loops_run_as_often_as_they_say() -> None:
    text = module(
        "%p = (s32[], bf16[8,8]{1,0}) parameter(0)",
        WHILE + ', backend_config={"known_trip_count":{"n":"80"}}',
        before=LOOP,
    )
    (gather,) = read_collectives(text)
    assert (gather.times, gather.volume) == (80, 512)
    counts = executions(read_module(text))
    assert counts == {"body": 80, "condition": 81, "main": 1}


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["%p = (s32[], bf16[8,8]{1,0}) parameter(0)", WHILE], "whose number of executions XLA does not say"),
        (
            [P, "ROOT %b = bf16[8,4]{1,0} collective-broadcast(%p), replica_groups={{0,1}}"],
            "which this reader does not know",
        ),
        (
            [P, "ROOT %b = bf16[8,4]{1,0} ragged-all-to-all(%p), replica_groups={{0,1}}"],
            "a ragged all-to-all has 6",
        ),
        ([P, "ROOT %g = bf16[8,8]{1,0} all-gather(%p), replica_groups=[2,4]<=[8]"], "a all_gather does not"),
        ([P, "ROOT %g = bf16[8,16]{1,0} all-gather(%p), dimensions={1}"], "in no form this reader knows"),
        ([P, "ROOT %g = bf16[8,4]{1,0} all-reduce(%p), replica_groups={{0,1},{2}}"], "groups of different sizes"),
        ([P, "ROOT %g = xyz[8]{0} all-reduce(%p), replica_groups={{0,1}}"], "unknown element type 'xyz'"),
        ([P, "ROOT %g bf16[8,4] all-reduce(%p)"], "mentions 3 collectives and 2 could be read"),
    ],
)
def test_what_cannot_be_read_is_said(lines: list[str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_collectives(module(*lines, before=ADD + WRAPPED + LOOP))


def test_half_a_module_is_refused() -> None:
    with pytest.raises(InputError, match="no complete entry computation"):
        read_collectives("HloModule jit_f\n")
    with pytest.raises(InputError, match="stands outside a computation"):
        read_collectives("HloModule jit_f\nwhat is this\n")
