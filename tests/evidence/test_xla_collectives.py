"""Collectives of compiled programs: each counted once, with its bytes, its mesh axes, and the work that can hide it."""

import re
from collections import Counter

import pytest

from dragonscale.errors import InputError
from dragonscale.evidence.xla.collectives import read_collectives
from tests.evidence.xla_fixtures import BATCH, HEAD, HIDDEN, LAYERS, MODEL, NAMES, TOKENS, compiled, text_of

BF16 = 2


@pytest.mark.parametrize("name", NAMES)
def test_every_collective_that_a_search_finds_is_accounted_for(name: str) -> None:
    words = "all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute|collective-broadcast|send|recv"
    starts = re.findall(
        rf"^\s+(?:ROOT )?%[\w.\-]+ = .*? (?:ragged-)?(?:{words})(?:-start)?\(%", text_of(name), re.MULTILINE
    )
    found = {each.name for each in read_collectives(text_of(name))}
    halves = text_of(name).count(" recv(")
    copies = len(re.findall(r"^%async_collective_fusion|AsyncCollectiveDone", text_of(name), re.MULTILINE))
    assert len(found) + copies + halves == len(starts)


def test_a_training_step_on_gpus_moves_what_fsdp_and_tensor_parallelism_say() -> None:
    found = compiled("h100_mlp")
    weight = MODEL * HIDDEN // 4 * BF16  # of one layer and matrix, on one shard of `tensor`
    rows = BATCH // 2 * MODEL * BF16
    sums = Counter[tuple[str, tuple[str, ...]]]()
    for each in found.collectives:
        sums[each.kind, each.axes] += round(each.wire_bytes * each.times)
    # Forward two gathers, backward three (the second matrix is not needed to compute the first product again).
    assert sums["all_gather", ("fsdp",)] == LAYERS * 5 * weight // 2
    assert sums["reduce_scatter", ("fsdp",)] == LAYERS * 2 * weight // 2
    assert sums["all_reduce", ("tensor",)] == LAYERS * 2 * (2 * rows * 3 // 4)
    assert sums["all_reduce", ("fsdp",)] == 4  # the loss
    assert found.wire_bytes(["tensor"]) == sums["all_reduce", ("tensor",)]
    assert found.wire_bytes() == sum(sums.values())


def test_what_blocks_and_what_is_hidden() -> None:
    by_kind = {(each.kind, each.axes): each for each in compiled("h100_mlp").collectives}
    gather = by_kind["all_gather", ("fsdp",)]
    assert (gather.how, gather.window_flops) == ("sync", None)
    scatter = by_kind["reduce_scatter", ("fsdp",)]
    assert scatter.how == "async"
    assert scatter.window_flops == 2 * BATCH * MODEL * HIDDEN / 8  # one product is scheduled while it runs
    reduce = by_kind["all_reduce", ("tensor",)]
    assert (reduce.how, reduce.window_flops, reduce.algorithm) == ("async", 0, "TRITON_ONE_SHOT")


def test_a_ring_hides_its_permutes_under_the_attention_of_one_step() -> None:
    found = compiled("h100_ring").collectives
    assert [(each.kind, each.axes, each.times, each.how) for each in found] == [
        ("permute", ("tensor",), 4, "async")
    ] * 2
    assert {each.wire_bytes for each in found} == {TOKENS // 4 * HEAD * BF16}
    assert {each.window_flops for each in found} == {2 * 2 * (TOKENS // 4) ** 2 * HEAD}
    assert not any(each.decomposed for each in found)


def test_a_ragged_exchange_sends_at_most_its_operand() -> None:
    (each,) = compiled("h100_ragged").collectives
    assert (each.kind, each.axes, each.at_most) == ("all_to_all", ("tensor",), True)
    assert each.wire_bytes == TOKENS // 4 * HEAD * BF16


def test_names_and_lines_come_from_the_program() -> None:
    for each in compiled("h100_mlp").collectives:
        assert each.op_name.startswith("jit(step)")
        assert re.fullmatch(r"compile_xla_fixtures.py:\d+", each.source)


def test_a_training_step_on_tpus() -> None:
    found = compiled("v5p_canonical_mlp_train")
    layers, tokens, model, hidden = 4, 8192, 4096, 16384
    weight, rows = model * hidden // 2 * BF16, tokens // 2 * model * BF16
    sums = Counter[tuple[str, tuple[str, ...]]]()
    for each in found.collectives:
        assert each.whole
        assert each.how == ("async" if each.padding else "sync")
        sums[each.kind, each.axes] += round(each.wire_bytes * each.times)
    assert sums["all_gather", ("y",)] == layers * 4 * weight // 2
    assert sums["all_gather", ("x",)] == layers * 3 * rows // 2
    assert sums["reduce_scatter", ("x",)] == layers * 2 * rows // 2
    # One of the two gradients is scattered along a dim that is padded to whole tiles, which a small permute mends.
    scattered = layers * 2 * weight // 2
    assert scattered < sums["reduce_scatter", ("y",)] < 1.02 * scattered
    (mend,) = (each for each in found.collectives if each.kind == "permute")
    assert mend.padding
    assert mend.axes == ("y",)
    assert mend.wire_bytes * layers == sums["reduce_scatter", ("y",)] - scattered
    algorithms = {each.algorithm for each in found.collectives if each.kind == "reduce_scatter"}
    assert algorithms == {"SingleInputAllReduceScatterFusion StrategyRing"}


def test_collective_matmuls_that_the_compiler_made() -> None:
    """A product whose gather becomes permutes in a loop: over 16 chips 17 sends, where a ring needs 15."""
    found = compiled("v5p_full_mlp_windowed")
    layers, tokens, model, hidden, mesh = 3, 65536, 8192, 32768, {"y": 16, "x": 4}
    assert found.flops == 7 * layers * 2 * tokens * model * hidden / 64
    permutes = [each for each in found.collectives if each.kind == "permute"]
    assert all(each.decomposed and each.how == "async" for each in permutes)
    sends = Counter[tuple[tuple[str, ...], float]]()
    for each in permutes:
        sends[each.axes, each.wire_bytes] += each.times
    weight, rows = model * hidden // 4 // mesh["y"] * BF16, tokens // 16 * model // mesh["x"] * BF16
    # Five products go round `y` and two round `x`, in both directions at once; each sends twice more than it must.
    assert sends == {(("y",), weight): 5 * layers * 17, (("x",), rows): 2 * layers * 5}
    hidden_ones = [each for each in permutes if each.times == layers * 4]
    assert {each.window_flops for each in hidden_ones} == {2 * tokens * model * hidden / 64 / 8}
    assert all(each.op_name.endswith("dot_general") and each.source.startswith("programs.py:") for each in permutes)


def test_fused_asynchronous_collectives_count_once_and_hide_under_their_products() -> None:
    """Start, middle and end of one gather are three fusions, each with a copy of it."""
    found = compiled("v5p_fused_mlp")
    assert text_of("v5p_fused_mlp").count(" all-gather(") == 7 + 2 * 3
    gathers = [each for each in found.collectives if each.kind == "all_gather"]
    assert Counter(each.how for each in gathers) == {"sync": 4, "async": 3}
    layers, tokens, model, hidden = 3, 16384, 8192, 16384
    one = 2 * tokens * model * hidden / 4
    assert [each.window_flops for each in gathers if each.how == "async"] == [one] * 3
    assert found.flops == 6 * layers * one
    assert found.unknown == ()


def test_a_reduction_over_slices_is_three_steps() -> None:
    found = compiled("v5p_canonical_slices_all_reduce").collectives
    whole = 2048 * 2048 // 8 * BF16
    assert [(each.kind, each.axes, each.between_slices) for each in found] == [
        ("reduce_scatter", ("x",), False),
        ("all_reduce", ("slice",), True),
        ("all_gather", ("x",), False),
    ]
    assert [each.wire_bytes for each in found] == [whole * 3 / 4, 2 * (whole / 4) / 2, whole * 3 / 4]
    (permute,) = compiled("v5p_canonical_slices_permute").collectives
    assert (permute.kind, permute.axes, permute.between_slices) == ("permute", ("slice",), True)
    assert permute.wire_bytes == whole


def test_a_collective_on_sparse_cores_is_counted_where_its_call_starts() -> None:
    (each,) = compiled("tpu7x_canonical_case2").collectives
    assert (each.kind, each.axes, each.size, each.how) == ("all_reduce", ("x",), 8, "async")
    assert each.wire_bytes == 2 * 8192 * 8192 * BF16 * 7 / 8
    assert (each.window_flops, each.algorithm) == (0, "sparsecore")  # nothing but itself to wait for


def test_an_exchange_over_two_axes_of_tpus() -> None:
    (each,) = compiled("v5p_canonical_all_to_all_yx").collectives
    assert (each.kind, each.axes, each.size, each.algorithm) == ("all_to_all", ("y", "x"), 4, "AllToAllEmitter")
    assert each.wire_bytes == 8192 * 4096 // 4 * BF16 * 3 // 4


def module(*lines: str, before: str = "") -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"HloModule jit_f\n{before}\nENTRY %main (p: bf16[8,4]) -> bf16[8,4] {{\n{body}\n}}\n"


P, TOKEN = "%p = bf16[8,4]{1,0} parameter(0)", "%token = token[] after-all()"
SLICES = (
    'is_host_transfer=true, frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime",'
    '_xla_megascale_target="{1,2}x{0:3}",_xla_megascale_transfer_type="TYPE"}'
)


def transfer(attributes: str) -> str:
    return module(
        P,
        TOKEN,
        f"%send = (bf16[8,4]{{1,0}}, u32[], token[]) send(%p, %token), channel_id=3, {attributes}",
        f"%recv = (bf16[8,4]{{1,0}}, u32[], token[]) recv(%token), channel_id=3, {attributes}",
        "%sent = token[] send-done(%send), channel_id=3",
        "%got = (bf16[8,4]{1,0}, token[]) recv-done(%recv), channel_id=3",
        "ROOT %out = bf16[8,4]{1,0} get-tuple-element(%got), index=0",
    )


def test_transfers_between_slices() -> None:
    (each,) = read_collectives(transfer(SLICES.replace("TYPE", "ALL_REDUCE")))
    assert (each.kind, each.groups, each.wire_bytes, each.how) == (
        "all_reduce",
        ((0, 4), (1, 5), (2, 6), (3, 7)),
        64,
        "async",
    )
    (each,) = read_collectives(transfer(SLICES.replace("TYPE", "ALL_GATHER")))
    assert (each.kind, each.volume, each.wire_bytes) == ("all_gather", 128, 64)


def test_transfers_with_pairs_are_a_permute_and_transfers_to_the_host_are_none() -> None:
    pairs = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}'
    (each,) = read_collectives(transfer(pairs))
    assert (each.kind, each.groups, each.wire_bytes) == ("permute", ((0, 1), (1, 0)), 64)
    assert read_collectives(transfer("is_host_transfer=true")) == []


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ("", "does not say between which devices"),
        (SLICES.replace("TYPE", "ALL_TO_SOME"), "which this reader does not know"),
        (SLICES.replace("TYPE", "ONE_TO_ONE"), "which this reader does not know"),
        (SLICES.replace("TYPE", "ALL_REDUCE").replace("{1,2}x{0:3}", "all"), "in no form this reader knows"),
    ],
)
def test_transfers_that_are_not_understood(attributes: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_collectives(transfer(attributes))


def test_half_a_transfer_is_refused() -> None:
    text = transfer(SLICES.replace("TYPE", "ALL_REDUCE"))
    with pytest.raises(InputError, match="1 transfers are sent and 0 received"):
        read_collectives("\n".join(line for line in text.splitlines() if "recv(" not in line and "%recv" not in line))


def test_all_devices_without_names() -> None:
    text = module(P, "ROOT %r = bf16[8,4]{1,0} all-reduce(%p), replica_groups={}, to_apply=%add", before=ADD)
    (each,) = read_collectives(text, chips=8)
    assert (each.size, each.wire_bytes) == (8, 2 * 64 * 7 / 8)
    with pytest.raises(InputError, match="groups of different sizes, or none"):
        read_collectives(text)


ADD = """
%add (x: bf16[], y: bf16[]) -> bf16[] {
  %x = bf16[] parameter(0)
  %y = bf16[] parameter(1)
  ROOT %sum = bf16[] add(%x, %y)
}
"""
SCATTER = """
%all-reduce-scatter.1 (a: bf16[8,4]) -> bf16[4,4] {
  %a = bf16[8,4]{1,0} parameter(0)
  %zero = s32[] constant(0)
  %r = bf16[8,4]{1,0} all-reduce(%a), replica_groups={{0,1}}, to_apply=%add
  ROOT %cut = bf16[4,4]{1,0} dynamic-slice(%r, %zero, %zero), dynamic_slice_sizes={4,4}
}
"""


def test_an_all_reduce_in_a_fusion_that_keeps_a_slice_is_a_reduce_scatter() -> None:
    line = "ROOT %f = bf16[4,4]{1,0} fusion(%p), kind=kCustom, calls=%all-reduce-scatter.1"
    text = module(P, line, before=ADD + SCATTER)
    (each,) = read_collectives(text)
    assert (each.kind, each.sent.bytes, each.received.bytes, each.wire_bytes) == ("reduce_scatter", 64, 32, 32)
    with pytest.raises(InputError, match="does not take a slice of it"):
        read_collectives(text.replace("bf16[4,4]{1,0} dynamic-slice", "bf16[2,4]{1,0} dynamic-slice"))
    (each,) = read_collectives(text.replace("all-reduce-scatter", "other").replace("dynamic-slice(", "negate("))
    assert (each.kind, each.wire_bytes, each.how) == ("all_reduce", 64, "sync")


BRANCHES = """
%yes (a: bf16[8,4]) -> bf16[8,4] {
  %a = bf16[8,4]{1,0} parameter(0)
  ROOT %r = bf16[8,4]{1,0} all-reduce(%a), replica_groups={{0,1}}, to_apply=%add
}

%no (b: bf16[8,4]) -> bf16[8,4] {
  ROOT %b = bf16[8,4]{1,0} parameter(0)
}
"""


def test_a_collective_in_a_branch_is_refused() -> None:
    line = "ROOT %c = bf16[8,4]{1,0} conditional(%t, %p, %p), true_computation=%yes, false_computation=%no"
    text = module(P, "%t = pred[] constant(true)", line, before=ADD + BRANCHES)
    with pytest.raises(InputError, match="whose number of executions XLA does not say"):
        read_collectives(text)
    assert read_collectives(text.replace("=%yes", "=%no")) == []
