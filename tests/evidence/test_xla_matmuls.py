"""FLOPs of compiled programs against hand counts, and trip counts that the TPU compiler does not write down."""

import re
from collections import Counter

import pytest

from dragonscale.errors import InputError
from dragonscale.evidence.xla.call_graph import UNKNOWN, trip_count
from dragonscale.evidence.xla.compiled import read_matmuls
from dragonscale.evidence.xla.hlo_text import read_module
from dragonscale.evidence.xla.layouts import read_shapes
from dragonscale.evidence.xla.matmul_sizes import convolution_flops
from tests.evidence.xla_fixtures import BATCH, HEAD, HIDDEN, LAYERS, MODEL, TOKENS, compiled, text_of

CHIPS = 8


@pytest.mark.parametrize("name", ["h100_mlp", "h100_mlp_triton"])
def test_a_scanned_training_step_has_the_flops_of_a_hand_count(name: str) -> None:
    found = compiled(name)
    one = 2 * BATCH * MODEL * HIDDEN / CHIPS
    # Two products forward, the first again (the second's result is not needed), and two for each product backward.
    assert found.flops == (2 + 1 + 4) * LAYERS * one
    assert found.unknown == ()
    assert {product.flops_each for product in found.products} == {one}
    assert Counter("bd,df->bf" in product.op_name for product in found.products) == {True: 4, False: 3}
    assert all(re.fullmatch(r"compile_xla_fixtures.py:\d+", product.source) for product in found.products)


def test_a_training_step_for_tpus_has_the_flops_of_a_hand_count() -> None:
    found = compiled("v5p_canonical_mlp_train")
    layers, tokens, model, hidden, chips = 4, 8192, 4096, 16384, 4
    assert found.flops == 6 * layers * 2 * tokens * model * hidden / chips
    assert [loop.trips for loop in found.loops] == [layers, layers]


def test_batched_products_for_tpus_are_convolutions_over_their_batch() -> None:
    found = compiled("v5p_canonical_attention")
    batch, tokens, heads, group, head = 8 // 2, 512, 8 // 2, 2, 128
    assert {product.what for product in found.products} == {"convolution"}
    # The scores, then for the gradient of a sum: dV, the scores' gradient, dQ and dK.
    assert [product.flops for product in found.products] == [2 * batch * heads * group * tokens**2 * head] * 5


def test_a_kernel_of_the_tpu_compiler_and_a_kernel_that_hides_its_work() -> None:
    found = compiled("v5p_canonical_ring")
    assert Counter(product.what for product in found.products) == {"convolution": 1, "tpu_custom_call": 1}
    assert found.flops == 4 * 2 * (2 * 512**2 * 128)
    hidden = compiled("v5p_canonical_ragged_dot")
    assert hidden.products == ()
    assert {each.what for each in hidden.unknown} == {"tpu_custom_call"}
    assert any("ragged_dot" in each.op_name for each in hidden.unknown)


@pytest.mark.parametrize("name", ["h100_mlp", "h100_ring"])
def test_trip_counts_are_the_same_when_the_compiler_does_not_write_them(name: str) -> None:
    text = re.sub(r'"known_trip_count":\{"n":"\d+"\},', "", text_of(name))
    assert text != text_of(name)
    assert "known_trip_count" not in text
    module = read_module(text)
    found = [
        trip_count(module, computation.name, each)
        for computation in module.computations.values()
        for each in computation.instructions
        if each.opcode == "while"
    ]
    assert found == [loop.trips for loop in compiled(name).loops]


def test_of_a_conditional_the_dearest_branch_counts() -> None:
    found = compiled("h100_ring")
    steps = 4
    assert [product.times for product in found.products] == [steps, steps]
    assert found.flops == 2 * (2 * (TOKENS // steps) ** 2 * HEAD) * steps


def test_library_calls() -> None:
    found = {product.what: product.flops for product in compiled("h100_libraries").products}
    batch, heads, keys, head = 8 // 2, 8 // 4, 128, 64
    # Of the 16 x 3 places that a padded window visits along each side, 2 are padding.
    convolution = 2 * batch * 32 * 64 * (16 * 3 - 2) ** 2
    assert found == {
        "__cublas$lt$matmul": 2 * batch * heads * keys * keys * head,
        "__cublas$lt$matmul$f8": 2 * 256**3,
        "__cudnn$convForward": convolution,
        "__cudnn$convBackwardInput": convolution,
        "__cudnn$convBackwardFilter": convolution,
    }


def module(*lines: str, before: str = "") -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"HloModule jit_f\n{before}\nENTRY %main (p: bf16[8,4]) -> bf16[8,4] {{\n{body}\n}}\n"


QKV = [f"%{name} = bf16[4,128,8,64]{{3,2,1,0}} parameter({place})" for place, name in enumerate("qkv")]
SCORES = '"cudnn_fmha_backend_config":{"intermediate_tensor_shape":{"dimensions":["4","8","128","128"]}}'


@pytest.mark.parametrize(("target", "products"), [("__cudnn$fmhaSoftmax", 2), ("__cudnn$fmhaSoftmaxBackward", 5)])
def test_fused_attention(target: str, products: int) -> None:
    call = f'ROOT %a = (bf16[4,128,8,64]{{3,2,1,0}}, u8[0]{{0}}) custom-call(%q, %k, %v), custom_call_target="{target}"'
    found, unknown = read_matmuls(read_module(module(*QKV, call + f", backend_config={{{SCORES}}}")))
    assert [product.flops for product in found] == [products * 2 * 4 * 8 * 128 * 128 * 64]
    assert unknown == []
    with pytest.raises(InputError, match="a configuration this reader cannot read"):
        read_matmuls(read_module(module(*QKV, call)))


def test_custom_calls_that_hide_work_are_listed() -> None:
    lines = [
        *QKV,
        '%b = bf16[8]{0} custom-call(), custom_call_target="AllocateBuffer"',
        (
            'ROOT %a = bf16[8]{0} custom-call(%q, %b), custom_call_target="tpu_custom_call", '
            'metadata={op_name="jit(f)/splash"}'
        ),
    ]
    found, (unknown,) = read_matmuls(read_module(module(*lines)))
    assert found == []
    assert (unknown.what, unknown.op_name, unknown.times) == ("tpu_custom_call", "jit(f)/splash", 1)
    assert unknown.shapes == "bf16[4,128,8,64]{3,2,1,0}, bf16[8]{0} -> bf16[8]{0}"


def loop(start: str, step: str, condition: str, extra: str = "s32[] parameter(1)") -> str:
    """A loop over (counter, bound, array) with a product in its body."""
    state = "(s32[], s32[], bf16[4,4])"
    before = f"""
%compared (c: s32[], b: s32[]) -> pred[] {{
  %c = s32[] parameter(0)
  %b = s32[] parameter(1)
  ROOT %less = pred[] compare(%c, %b), direction=LT
}}

%condition (s: {state}) -> pred[] {{
  %s = {state} parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] get-tuple-element(%s), index=1
  %seven = s32[]{{:T(128)}} constant(7)
  {condition}
}}

%body (t: {state}) -> {state} {{
  %t = {state} parameter(0)
  %j = s32[] get-tuple-element(%t), index=0
  %m = s32[] get-tuple-element(%t), index=1
  %x = bf16[4,4]{{1,0}} get-tuple-element(%t), index=2
  {step}
  %y = bf16[4,4]{{1,0}} dot(%x, %x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT %out = {state} tuple(%next, %m, %y)
}}
"""
    lines = [
        "%p = bf16[4,4]{1,0} parameter(0)",
        f"%start = {start}",
        f"%bound = {extra}",
        f"%tuple = {state} tuple(%start, %bound, %p)",
        f"ROOT %w = {state} while(%tuple), condition=%condition, body=%body",
    ]
    return module(*lines, before=before)


ZERO = "s32[] constant(0)"
ONE = "%one = s32[] constant(1)\n  %next = s32[] add(%j, %one)"
TWO = "%two = s32[] constant(2)\n  %next = s32[] add(%two, %j)"
DOWN = "%one = s32[] constant(1)\n  %next = s32[] subtract(%j, %one)"
LOOPS = {
    "less than": (ZERO, ONE, "ROOT %r = pred[] compare(%i, %seven), direction=LT", 7),
    "at most": (ZERO, ONE, "ROOT %r = pred[] compare(%i, %seven), direction=LE", 8),
    "turned round": (ZERO, ONE, "ROOT %r = pred[] compare(%seven, %i), direction=GT", 7),
    "steps of two": (ZERO, TWO, "ROOT %r = pred[] compare(%i, %seven), direction=LT", 4),
    "backwards": ("s32[] constant(9)", DOWN, "ROOT %r = pred[] compare(%i, %seven), direction=GT", 2),
    "in a fusion": (ZERO, ONE, "ROOT %r = pred[] fusion(%i, %seven), kind=kLoop, calls=%compared", 7),
    "in a call": (ZERO, ONE, "ROOT %r = pred[] call(%i, %seven), to_apply=%compared", 7),
    "copied": (ZERO, ONE, "%k = s32[] copy(%i)\n  ROOT %r = pred[] compare(%k, %seven), direction=NE", 7),
    "a bound in the state": (ZERO, ONE, "ROOT %r = pred[] compare(%i, %n), direction=LT", 5),
    "never": ("s32[] constant(9)", ONE, "ROOT %r = pred[] compare(%i, %seven), direction=LT", 0),
}


@pytest.mark.parametrize(("start", "step", "condition", "trips"), LOOPS.values(), ids=LOOPS)
def test_loops_that_count(start: str, step: str, condition: str, trips: int) -> None:
    text = loop(start, step, condition, "s32[] constant(5)")
    found, unknown = read_matmuls(read_module(text))
    assert [product.times for product in found] == [trips] * bool(trips)
    assert unknown == []


UNCOUNTED = {
    "a start that is an argument": ("s32[] parameter(2)", ONE, "ROOT %r = pred[] compare(%i, %seven), direction=LT"),
    "a bound that is an argument": (ZERO, ONE, "ROOT %r = pred[] compare(%i, %n), direction=LT"),
    "a step that is not constant": (
        ZERO,
        "%next = s32[] add(%j, %m)",
        "ROOT %r = pred[] compare(%i, %seven), direction=LT",
    ),
    "the wrong way": (ZERO, DOWN, "ROOT %r = pred[] compare(%i, %seven), direction=LT"),
    "not a comparison": (ZERO, ONE, "ROOT %r = pred[] constant(true)"),
}


@pytest.mark.parametrize(("start", "step", "condition"), UNCOUNTED.values(), ids=UNCOUNTED)
def test_loops_that_do_not_count_are_said_to_be_unknown(start: str, step: str, condition: str) -> None:
    found, (unknown,) = read_matmuls(read_module(loop(start, step, condition)))
    assert found == []
    assert (unknown.what, unknown.times) == ("dot", UNKNOWN)


def test_only_positions_that_meet_an_element_count() -> None:
    lhs, rhs, out = read_shapes("bf16[16,64,32] bf16[16,32,48] bf16[16,64,48]")
    one = 2 * 64 * 32 * 48
    assert convolution_flops(lhs, rhs, out, "0bf_0io->0bf", "{size=16 stride=15 lhs_dilate=16}") == 16 * one
    assert convolution_flops(lhs, rhs, out, "0bf_0io->0bf", "{size=16 pad=15_15}") == (16 * 17 // 2) * one
    with pytest.raises(InputError, match="does not have 1 dims"):
        convolution_flops(lhs, rhs, out, "0bf_0io->0bf", "{size=3x3}")
    with pytest.raises(InputError, match="in no form this reader knows"):
        convolution_flops(lhs, rhs, out, "bf", "")
