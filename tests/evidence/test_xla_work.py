"""The FLOPs of scheduled instructions: what can hide a collective."""

import pytest

from dragonscale.evidence.xla.call_graph import PlacedOp
from dragonscale.evidence.xla.collectives import read_collectives
from dragonscale.evidence.xla.hlo_text import read_module
from dragonscale.evidence.xla.op_costs import op_flops

TEXT = """
HloModule jit_f, is_scheduled=true

%sliced (s: bf16[6,8,4], i: s32[]) -> bf16[8,4] {
  %s = bf16[6,8,4]{2,1,0} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  %cut = bf16[1,8,4]{2,1,0} dynamic-slice(%s, %i, %zero, %zero), dynamic_slice_sizes={1,8,4}
  ROOT %flat = bf16[8,4]{1,0} bitcast(%cut)
}

%updated (u: bf16[6,8,4], v: bf16[1,8,4], j: s32[]) -> bf16[6,8,4] {
  %u = bf16[6,8,4]{2,1,0} parameter(0)
  %v = bf16[1,8,4]{2,1,0} parameter(1)
  %j = s32[] parameter(2)
  %nought = s32[] constant(0)
  ROOT %put = bf16[6,8,4]{2,1,0} dynamic-update-slice(%u, %v, %j, %nought, %nought)
}

%outer (o: bf16[6,8,4], k: s32[]) -> bf16[8,4] {
  %o = bf16[6,8,4]{2,1,0} parameter(0)
  %k = s32[] parameter(1)
  %inner = bf16[8,4]{1,0} fusion(%o, %k), kind=kLoop, calls=%sliced
  ROOT %twice = bf16[8,4]{1,0} add(%inner, %inner)
}

%product (a: bf16[8,4], b: bf16[8,4]) -> bf16[8,8] {
  %a = bf16[8,4]{1,0} parameter(0)
  %b = bf16[8,4]{1,0} parameter(1)
  ROOT %dot = bf16[8,8]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}

%body (state: (s32[], bf16[8,4])) -> (s32[], bf16[8,4]) {
  %state = (s32[], bf16[8,4]{1,0}) parameter(0)
  %n = s32[] get-tuple-element(%state), index=0
  %x = bf16[8,4]{1,0} get-tuple-element(%state), index=1
  %squared = bf16[8,8]{1,0} fusion(%x, %x), kind=kOutput, calls=%product
  ROOT %next = (s32[], bf16[8,4]{1,0}) tuple(%n, %x)
}

%condition (state.1: (s32[], bf16[8,4])) -> pred[] {
  %state.1 = (s32[], bf16[8,4]{1,0}) parameter(0)
  ROOT %true = pred[] constant(true)
}

ENTRY %main (w: bf16[6,8,4], n.1: s32[]) -> bf16[6,8,4] {
  %w = bf16[6,8,4]{2,1,0} parameter(0)
  %n.1 = s32[] parameter(1)
  %one = bf16[8,4]{1,0} fusion(%w, %n.1), kind=kLoop, calls=%sliced
  %start = (bf16[8,4]{1,0}, bf16[16,4]{1,0}) all-gather-start(%one), channel_id=1, replica_groups={{0,1}}, dimensions={0}
  %two = bf16[8,4]{1,0} fusion(%w, %n.1), kind=kLoop, calls=%outer
  %fast = bf16[8,4]{1,0:S(1)} copy(%two)
  %tuple = (s32[], bf16[8,4]{1,0}) tuple(%n.1, %two)
  %loop = (s32[], bf16[8,4]{1,0}) while(%tuple), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  %done = bf16[16,4]{1,0} all-gather-done(%start)
  %row = bf16[1,8,4]{2,1,0} bitcast(%two)
  ROOT %put.1 = bf16[6,8,4]{2,1,0} fusion(%w, %row, %n.1), kind=kLoop, calls=%updated
}
"""
FLOPS = {"one": 0, "two": 0, "fast": 0, "tuple": 0, "start": 0, "loop": 5 * 2 * 8 * 8 * 4, "put.1": 0}


@pytest.mark.parametrize(("name", "flops"), FLOPS.items(), ids=FLOPS)
def test_flops_of_an_instruction(name: str, flops: float) -> None:
    module = read_module(TEXT)
    assert op_flops(PlacedOp(module, module.entry, module.entry.named[name])).matmul == flops


def test_a_window_is_what_stands_between_start_and_done() -> None:
    (gather,) = read_collectives(TEXT)
    assert (gather.how, gather.window_flops) == ("async", FLOPS["loop"])
