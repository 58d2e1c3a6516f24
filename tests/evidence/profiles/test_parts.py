"""Parts of the model and phases, read from the names that frameworks give: scopes of JAX's trainers, modules of
PyTorch, source files."""

import pytest

from dragonscale.evidence.profiles.attribution import attributed, own_role
from dragonscale.evidence.profiles.hlo_roles import HloReader
from dragonscale.evidence.profiles.recording import OpText, Recorder
from dragonscale.evidence.profiles.sections import phase_of_caller, phase_of_scope, section_of, section_of_source
from dragonscale.evidence.profiles.sizes import WeightMatmul, sizes_of
from dragonscale.evidence.xla.hlo_text import read_module

MAXTEXT = "jit(train_step)/transpose(jvp(TransformerLinenPure))/decoder/layers"
SCOPES = [
    (f"{MAXTEXT}/self_attention/query/dot_general", "attention", "backward"),
    (f"{MAXTEXT}/checkpoint/rematted_computation/self_attention/out/dot_general", "attention", "recompute"),
    (f"{MAXTEXT}/mlp/wi_0/dot_general", "mlp", "backward"),
    (f"{MAXTEXT}/mlp/wo/dot_general", "mlp", "backward"),
    (f"{MAXTEXT}/pre_self_attention_layer_norm/mul", "attention", "backward"),
    (f"{MAXTEXT}/post_self_attention_layer_norm/mul", "mlp", "backward"),
    (f"{MAXTEXT}/MoeBlock_0/gate/dot_general", "router", "backward"),
    (f"{MAXTEXT}/MoeBlock_0/jit(gmm)/pallas_call", "experts", "backward"),
    ("jit(train_step)/jvp(TransformerLinenPure)/decoder/logits_dense/dot_general", "head", "forward"),
    ("jit(train_step)/jvp(TransformerLinenPure)/token_embedder/take", "embedding", "forward"),
    ("jit(train_step)/jvp(TransformerLinenPure)/decoder/token_embedder.attend/dot_general", "head", "forward"),
    ("jit(train_step)/optax/scale_by_adam/mul", "optimizer", "update"),
    ("jit(step)/jvp(loss)/reduce_sum", "loss", "forward"),
    ("jit(step)/jvp()/while/body/eval_jaxpr/attention/Q/Wq/abc,cde->abde/dot_general", "attention", "forward"),
    ("jit(step)/jvp(head/Y/W_head)/abc,dc->abd/dot_general", "head", "forward"),
    ("jit(train_step)/transpose(jvp(loss))/transformer/h_3/attn/c_attn/dot_general", "attention", "backward"),
    ("pjit(train_step)/jvp(FlaxLLaMAForCausalLM)/transformer/h/5/feed_forward/w1/dot_general", "mlp", "forward"),
    ("jit(decode_step)/layer_0/attn/attn_vec_einsum/dot_general", "attention", "decode"),
    (
        "nn.Module: LlamaForCausalLM_0/nn.Module: LlamaModel_0/nn.Module: LlamaAttention_3/nn.Module: Linear_21",
        "attention",
        "",
    ),
    ("nn.Module: MixtralForCausalLM_0/nn.Module: MixtralSparseMoeBlock_3/nn.Module: Linear_9", "experts", ""),
    ("nn.Module: Transformer_0/nn.Module: RMSNorm_8", "norm", ""),
    ("GPTModel/decoder/layers.3/self_attention/linear_qkv", "attention", ""),
    ("GPTModel/decoder/layers.3/mlp/linear_fc2", "mlp", ""),
    ("model.layers.7.mlp.experts.down_proj", "experts", ""),
    ("model.embed_tokens", "embedding", ""),
    ("Optimizer.step#AdamW.step", "optimizer", "update"),
    ("jit(f)/while/body/add", "", ""),
]


@pytest.mark.parametrize(("scope", "section", "phase"), SCOPES)
def test_scopes(scope: str, section: str, phase: str) -> None:
    assert (section_of(scope).section, phase_of_scope(scope)) == (section, phase)


def test_sources_and_callers() -> None:
    assert section_of_source("/site-packages/optax/_src/transform.py:120") == "optimizer"
    assert section_of_source("/site-packages/flax/linen/normalization.py:73") == "norm"
    assert section_of_source("/home/me/train.py:10") == ""
    again = "autograd::engine::evaluate_function: CheckpointFunctionBackward/CheckpointFunctionBackward/aten::mm"
    assert phase_of_caller(again) == "recompute"
    assert phase_of_caller("autograd::engine::evaluate_function: MmBackward0/MmBackward0/aten::mm") == "backward"


PROGRAM = """
HloModule jit_step

%fused (p: f32[4,8,16], i: s32[]) -> f32[8,16] {
  %p = f32[4,8,16]{2,1,0} parameter(0)
  %i = s32[] parameter(1)
  ROOT %s = f32[8,16]{1,0} dynamic-slice(%p, %i), dynamic_slice_sizes={1,8,16}, metadata={op_name="jit(step)/jvp()/while/body/slice"}
}

%both (a: f32[32,8], b: f32[8,16]) -> f32[32,16] {
  %a = f32[32,8]{1,0} parameter(0)
  %b = f32[8,16]{1,0} parameter(1)
  %d = f32[32,16]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/jvp()/mlp/U/Wu/dot_general"}
  ROOT %n = f32[32,16]{1,0} negate(%d), metadata={op_name="jit(step)/jvp()/attention/norm/X/neg"}
}

ENTRY %main (x: f32[32,8], w: f32[4,8,16], i: s32[]) -> f32[32,16] {
  %x = f32[32,8]{1,0} parameter(0)
  %w = f32[4,8,16]{2,1,0} parameter(1)
  %i = s32[] parameter(2)
  %slice_fusion = f32[8,16]{1,0} fusion(%w, %i), kind=kLoop, calls=%fused, metadata={op_name="jit(step)/jvp()/while/body/slice"}
  %dot_fusion = f32[32,16]{1,0} fusion(%x, %slice_fusion), kind=kOutput, calls=%both
  %t = f32[32,16]{1,0} tanh(%dot_fusion), metadata={op_name="jit(step)/transpose(jvp(attention))/tanh"}
  ROOT %u = f32[32,16]{1,0} multiply(%t, %t), metadata={op_name="jit(step)/mul"}
}
"""


def test_a_program_says_kind_part_phase_and_work() -> None:
    record = Recorder("a profile", "JAX/XProf")
    track = record.track(record.device("TPU v5p", "tpu"), "XLA Ops", "ops")
    record.programs = {"jit_step": read_module(PROGRAM)}
    for at, name in enumerate(("slice_fusion", "dot_fusion", "t", "u")):
        record.event(track, record.op(OpText(name, module="jit_step")), at * 10, 10)
    _, (piece, dot, back, rest) = attributed(record.made())
    # a fusion takes the part of its dearest op; a slice that of the matmul it feeds; what is in neither pass is the
    # update
    assert (dot.kind, dot.section, dot.phase, dot.what, dot.flops) == (
        "matmul",
        "mlp",
        "forward",
        "up",
        2 * 32 * 8 * 16,
    )
    assert (piece.section, piece.phase) == ("mlp", "forward")
    assert piece.hbm_bytes == 2 * 8 * 16 * 4 + 4  # not the whole stack
    assert (back.kind, back.section, back.phase) == ("elementwise", "attention", "backward")
    assert (rest.section, rest.phase) == ("optimizer", "update")


def test_a_program_without_parts_is_told_by_its_name() -> None:
    record = Recorder("a profile", "JAX/XProf")
    track = record.track(record.device("TPU v6e", "tpu"), "XLA Ops", "ops")
    text = "%copy-done = f32[8]{0} copy-done((f32[8]{0}, f32[8]{0:S(5)}, u32[]{:S(2)}) %copy-start)"
    record.event(track, record.op(OpText("copy-done", text=text, module="jit_f")), 0, 10)
    record.event(
        track,
        record.op(
            OpText("while.1", text="%while.1 = (s32[]) while((s32[]) %x), condition=%c, body=%b", module="jit_f")
        ),
        10,
        10,
    )
    _, (waits, loop) = attributed(record.made())
    assert (waits.kind, waits.section, waits.what) == ("host", "jit_f", "from the host")
    assert (loop.kind, loop.flops, loop.hbm_bytes) == ("control", None, None)


def test_hostile_ops_are_unknown_and_raise_nothing() -> None:
    texts = (
        "%x = q9[1,2] dot(",
        "%d = f32[8] dot(f32[4] %a, f32[4] %b), lhs_contracting_dims={7}, rhs_contracting_dims={9}",
        "%f = f32[" + "9" * 40 + "] add()",
    )
    for text in texts:
        assert own_role(OpText("x", text=text), HloReader(Recorder("a").made())).flops is None
    for name in ("(" * 3000, "flash" * 2000, "", "\x00", "triton_poi_fused_" + "_" * 5000):
        own_role(OpText(name, scope=name, caller=name, shapes=("f32[1", "[")))


def test_sizes_and_the_preset_that_has_them() -> None:
    """LLaMA 3 8B over 4 chips: joined projections, a joined gate, a vocabulary cut in 4."""
    rows = [
        WeightMatmul("attention", "QKV", 1, 4096, 1536, 4096, 64),
        WeightMatmul("attention", "Wo", 1, 4096, 4096, 1024, 64),
        WeightMatmul("mlp", "up", 1, 4096, 7168, 4096, 64),
        WeightMatmul("mlp", "down", 2, 4096, 4096, 1792, 64),
        WeightMatmul("head", "", 1, 8, 32064, 4096, 2),
    ]
    rows = [
        WeightMatmul(row.section, row.what, row.batch, 512 if row.m == 4096 else row.m, row.n, row.k, row.times)
        for row in rows
    ]
    found = sizes_of(rows, [(2, 8, 2, 256, 128)], 64)
    assert found.sizes == {
        "d_model": 4096,
        "tokens": 512,
        "d_ff": 3584,
        "heads": 8,
        "kv_heads": 2,
        "head_dim": 128,
        "seq": 256,
        "vocab": 32064,
        "layers": 32,
    }
    assert (found.model, found.tensor, found.unknown) == ("llama3-8b", 4, ())
    assert sizes_of([], [], 0).unknown


def test_two_widths_of_bare_mlps_are_not_told_apart() -> None:
    rows = [WeightMatmul("mlp", "", 1, 256, 2048, 512, 6.0), WeightMatmul("mlp", "", 1, 256, 512, 2048, 6.0)]
    found = sizes_of(rows, [], 0.0)
    assert not {"d_model", "d_ff"} & set(found.sizes)
    assert "cannot be told apart" in found.unknown[0]
    named = [
        WeightMatmul("mlp", what, 1, 256, row.n, row.k, 6.0) for what, row in zip(("up", "down"), rows, strict=True)
    ]
    assert sizes_of(named, [], 0.0).sizes == {"d_model": 512, "tokens": 256, "d_ff": 2048}


def test_a_program_in_one_file_has_no_parts_by_its_name() -> None:
    recorder = Recorder("a trace")
    track = recorder.track(recorder.device("NVIDIA H200", "gpu"), "stream 7", "ops")
    for number, name in enumerate(("nvjet_tst_128x128_64x4", "vectorized_elementwise_kernel")):
        recorder.event(track, recorder.op(OpText(name, source=f"/home/me/mlp.py:{number}")), number * 10, 9)
    assert {role.section for role in attributed(recorder.made())[1]} == {""}
