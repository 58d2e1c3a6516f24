"""FLOPs and bytes of every op beside XLA's own analysis, and what can be told from one line of a profile."""

import gzip
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.evidence.xla.compiled import read_matmuls
from dragonscale.evidence.xla.hlo_text import read_module
from dragonscale.evidence.xla.op_work import OpWork, op_bound, running_ops, work_of, work_of_text
from dragonscale.evidence.xla.patterns import hidden_scatters, windowed_einsums
from dragonscale.physics.hardware import load_chip
from tests.evidence.xla_fixtures import FOLDER, NAMES, text_of


def _programs() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    import jax
    import jax.numpy as jnp

    def f32(*dims: int) -> Any:
        return jax.ShapeDtypeStruct(dims, jnp.float32)

    x, row, place = f32(64, 256), f32(1, 256), jax.ShapeDtypeStruct((), jnp.int32)
    return {
        "matmul": (lambda x, w: jnp.tanh(x @ w) + 1, (x, f32(256, 512))),
        "softmax": (lambda x: jax.nn.softmax(x, axis=-1), (x,)),
        "slice": (lambda x, i: jax.lax.dynamic_slice(x, (i, 0), (1, 256)) * 2, (x, place)),
        "update": (lambda x, u, i: jax.lax.dynamic_update_slice(x, u, (i, 0)), (x, row, place)),
        "transpose": (lambda x: x.T.copy(), (x,)),
        "mixed": (lambda x: (x.astype(jnp.bfloat16) * 2).astype(jnp.float32).sum(0), (x,)),
        "sort": (lambda x: jnp.sort(x, -1), (x,)),
    }


def _sums(text: str) -> tuple[float, float, float]:
    module = read_module(text)
    found = [work_of(module, module.entry, each) for each in module.entry.instructions]
    return (
        sum(one.flops for one in found),
        sum(one.transcendentals for one in found),
        sum(one.hbm_bytes for one in found),
    )


@pytest.mark.parametrize("name", ["matmul", "softmax", "slice", "update", "transpose", "mixed", "sort"])
def test_xla_counts_the_same_before_and_after_optimization(name: str) -> None:
    jax = pytest.importorskip("jax")
    function, arguments = _programs()[name]
    lowered = jax.jit(function).lower(*arguments)
    compiled = lowered.compile()
    for text, xla in (
        (lowered.as_text("hlo"), lowered.cost_analysis()),
        (compiled.as_text(), compiled.cost_analysis()),
    ):
        if xla is None or "bytes accessed" not in xla:
            continue
        flops, functions, size = _sums(text)
        assert flops == xla.get("flops", 0)
        assert functions == xla.get("transcendentals", 0)
        assert size == pytest.approx(xla["bytes accessed"], abs=8)  # XLA counts one of a slice's indices


def test_a_loop_counts_in_all_its_turns() -> None:
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def layers(x: Any, w: Any) -> Any:
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0]

    lowered = jax.jit(layers).lower(
        jax.ShapeDtypeStruct((64, 256), "float32"), jax.ShapeDtypeStruct((7, 256, 256), "float32")
    )
    for text in (lowered.as_text("hlo"), lowered.compile().as_text()):
        program = ds.hlo(text)
        assert program.matmul_flops == 7 * 2 * 64 * 256 * 256
        assert program.transcendentals == 7 * 64 * 256
        assert [loop.trips for loop in program.loops] == [7]


@pytest.mark.parametrize("name", [name for name in NAMES if "ragged" not in name])
def test_matmuls_are_those_that_verify_counts(name: str) -> None:
    module = read_module(text_of(name))
    ops = running_ops(module)
    assert sum(each.work.matmul_flops * each.times for each in ops) == sum(
        each.flops for each in read_matmuls(module)[0]
    )
    for each in ops:
        inside = sum(one.flops for one in each.work.matmuls)
        assert inside == each.work.matmul_flops or (each.work.opcode == "custom-call" and not inside)
        assert each.work.kind != "unknown"


def test_windowed_einsums_in_loops_and_unrolled_and_none_where_a_layer_only_has_a_permute() -> None:
    windowed = windowed_einsums(read_module(text_of("v5p_full_mlp_windowed")))
    assert [one.trips for one in windowed if one.form == "loop"] == [4] * 5
    assert windowed_einsums(read_module(text_of("v5p_canonical_mlp_train"))) == []
    rings = FOLDER.parent / "xla_cases" / "v5e_4x4_2d_weight_stationary_rings.hlo.gz"
    unrolled = windowed_einsums(read_module(gzip.decompress(rings.read_bytes()).decode()))
    assert {(one.form, one.permutes) for one in unrolled} == {("unrolled", 6)}


def test_an_all_reduce_and_a_slice_by_the_device_s_number_is_a_reduce_scatter() -> None:
    text = """HloModule m, num_partitions=4

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

ENTRY %main (p: f32[64]) -> f32[16] {
  %p = f32[64]{0} parameter(0)
  %sum = f32[64]{0} all-reduce(%p), replica_groups={}, to_apply=%add
  %id = u32[] partition-id()
  %size = u32[] constant(16)
  %at = u32[] multiply(%id, %size)
  ROOT %mine = f32[16]{0} dynamic-slice(%sum, %at), dynamic_slice_sizes={16}
}
"""
    (found,) = hidden_scatters(read_module(text))
    assert (found.all_reduce, found.slice) == ("sum", "mine")
    assert not hidden_scatters(read_module(text.replace("partition-id()", "constant(3)")))
    (row,) = ds.hlo(text).collectives
    assert (row.kind, row.degree, row.wire_bytes) == ("all_reduce", 4, 2 * 64 * 4 * 3 / 4)


def line(text: str) -> OpWork:
    return work_of_text(text)


def test_one_line_tells_what_it_can_and_says_what_it_cannot() -> None:
    fusion = line(
        "%fusion.3 = bf16[32,4096]{1,0:S(1)} fusion(bf16[32,8192]{1,0} %x), kind=kCustom, calls=%all-reduce-scatter.3"
    )
    assert (fusion.kind, fusion.group_size, fusion.read_bytes, fusion.written_bytes) == (
        "reduce_scatter",
        2,
        {"HBM": 32 * 8192 * 2},
        {"VMEM": 32 * 4096 * 2},
    )
    assert fusion.unknown
    short = line("%dot.1 = f32[8,8] dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}")
    assert (short.kind, short.matmul_flops) == ("matmul", 0)
    assert "the shapes of its operands" in short.unknown
    copy = line("%copy-start.1 = (f32[8]{0:S(5)}, f32[8]{0}, u32[]{:S(2)}) copy-start(f32[8]{0} %x)")
    assert (copy.read_bytes, copy.written_bytes, copy.half) == ({"HBM": 32}, {"host": 32}, "start")
    done = line("%copy-done.1 = f32[8]{0:S(5)} copy-done((f32[8]{0:S(5)}, f32[8]{0}, u32[]) %copy-start.1)")
    assert (done.hbm_bytes, done.half) == (0, "done")


@pytest.mark.parametrize(
    ("groups", "size"),
    [
        ("{{0,1},{2,3}}", 2),
        ("[2,4]<=[8]", 4),
        ("[4,2]<=[2,4]T(1,0)", 2),
        ("mesh['x'=2,'y'=4] {'y'}", 4),
        ("{{0,16,32,48},...}", 4),
    ],
)
def test_groups_in_every_form(groups: str, size: int) -> None:
    work = line(
        f"%g = bf16[{8 * size}]{{0}} all-gather(bf16[8]{{0}} %p), channel_id=1, replica_groups={groups}, "
        "dimensions={0}"
    )
    assert (work.kind, work.group_size, work.wire_bytes) == ("all_gather", size, 16 * (size - 1))


@pytest.mark.parametrize(("mask", "done"), [("CAUSAL", 0.5), ("NO_MASK", 1.0)])
def test_a_causal_mask_halves_what_attention_takes_at_best(mask: str, done: float) -> None:
    heads = "bf16[4,2048,8,64]{3,2,1,0}"
    scores = '"intermediate_tensor_shape":{"dimensions":["4","8","2048","2048"]}'
    work = line(
        f"%a = ({heads}, u8[0]{{0}}) custom-call({heads} %q, {heads} %k, {heads} %v), "
        f'custom_call_target="__cudnn$fmhaSoftmax", '
        f'backend_config={{"cudnn_fmha_backend_config":{{{scores},"mask_type":"{mask}"}}}}'
    )
    flops = 4 * 4 * 8 * 2048 * 2048 * 64
    assert work.matmul_flops == flops
    chip = load_chip("h200")
    assert op_bound(work, chip).parts["compute"] == pytest.approx(done * flops / chip.peak("bf16"))
