"""Layers told from the order of kernels: made-up streams of real kernels' names, whose parts are known."""

import pytest

from dragonscale.evidence.profiles.attribution import attributed
from dragonscale.evidence.profiles.recording import OpText, Recorder

GEMM = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT"
NORM = "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>"
NORM_BACK = "void layer_norm::ln_bwd_kernel<layer_norm::Kernel_traits<__nv_bfloat16>>"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>"
SILU = "void vllm::act_and_mul_kernel<c10::BFloat16, &silu>"
FLASH = "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, cutlass::bfloat16_t>>"
FLASH_BACK = "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128>>"
COPY = "triton_poi_fused__to_copy_4"
EMBED = "void at::native::(anonymous namespace)::embedding_kernel<long>"
LOSS = "liger_cross_entropy_kernel"
ADAM = "void multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float>>"
MOE = "fused_moe_kernel"
GATE = "void vllm::moe::topkGatingSoftmax<8, 8, 4, 16, 32, int>"

Stream = list[tuple[str, str, str]]


def attention(qkv: int, phase: str) -> Stream:
    return [
        (NORM, "attention", phase),
        *[(GEMM, "attention", phase)] * qkv,
        (FLASH, "attention", phase),
        (GEMM, "attention", phase),
        (ADD, "attention", phase),
    ]


def mlp(up: int, phase: str) -> Stream:
    return [
        (NORM, "mlp", phase),
        *[(GEMM, "mlp", phase)] * up,
        (SILU, "mlp", phase),
        (COPY, "mlp", phase),
        (GEMM, "mlp", phase),
    ]


def experts(phase: str) -> Stream:
    gate = [(NORM, "experts", phase), (GEMM, "router", phase), (GATE, "router", phase)]
    return [*gate, (MOE, "experts", phase), (SILU, "experts", phase), (MOE, "experts", phase)]


def backward(stream: Stream, phase: str = "backward") -> Stream:
    """The same in reverse: each matmul twice, norms and attention by their backward kernels."""
    names = {NORM: [NORM_BACK], GEMM: [GEMM, GEMM], FLASH: [FLASH_BACK]}
    return [(each, section, phase) for name, section, _ in reversed(stream) for each in names.get(name, [name])]


def layers(count: int, qkv: int, up: int, phase: str = "forward") -> Stream:
    return [*attention(qkv, phase), *mlp(up, phase)] * count


def check(stream: Stream, agree: float = 1.0) -> list[str]:
    """The kinds of all ops, where parts and phases are as they should be."""
    record = Recorder("a trace", "PyTorch/Kineto")
    track = record.track(record.device("NVIDIA H200", "gpu"), "stream 7", "ops")
    for number, (name, _, _) in enumerate(stream):
        record.event(track, record.op(OpText(name)), 10 * number, 8)
    split, roles = attributed(record.made())
    found = [(roles[op].section, roles[op].phase) for op in split.events.op]
    wrong = [
        f"{number} {name[:30]}: {got}, wanted {section} {phase}"
        for number, ((name, section, phase), got) in enumerate(zip(stream, found, strict=True))
        if got != (section, phase)
    ]
    assert len(wrong) <= (1 - agree) * len(stream), "\n".join(wrong)
    return [roles[op].kind for op in split.events.op]


@pytest.mark.parametrize(("qkv", "up"), [(1, 1), (1, 2), (3, 2), (2, 1), (3, 1)])
def test_forward_passes(qkv: int, up: int) -> None:
    once = [(EMBED, "embedding", "forward"), *layers(4, qkv, up), (NORM, "head", "forward"), (GEMM, "head", "forward")]
    check(once * 3)


def test_attention_of_separate_kernels() -> None:
    """Scores, softmax and their product as kernels of their own: eager attention."""
    soft = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 11, false, false>"
    names = (NORM, GEMM, GEMM, GEMM, GEMM, ADD, soft, COPY, GEMM, GEMM, ADD)
    layer: Stream = [*((name, "attention", "forward") for name in names), *mlp(2, "forward")]
    kinds = check(
        [(EMBED, "embedding", "forward"), *layer * 4, (NORM, "head", "forward"), (GEMM, "head", "forward")] * 2
    )
    # projections are matmuls; what makes the scores and what they are multiplied with is attention
    assert [number for number, kind in enumerate(kinds[1 : 1 + len(names)]) if kind == "attention"] == [4, 8]
    assert [number for number, kind in enumerate(kinds[1 : 1 + len(names)]) if kind == "matmul"] == [1, 2, 3, 9]


def test_experts_have_a_router() -> None:
    layer = [*attention(1, "forward"), *experts("forward")]
    check([(EMBED, "embedding", "forward"), *layer * 4, (NORM, "head", "forward"), (GEMM, "head", "forward")] * 2)


def test_an_engine_with_tensor_parallelism() -> None:
    """Reductions on the compute stream belong to the matmul before them; sampling comes after the head."""
    rope = "void vllm::rotary_embedding_kernel<c10::BFloat16, true>"
    cache = "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>"
    pieces = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>"
    merge = "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>>"
    total = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>"
    begin: Stream = [(name, "attention", "forward") for name in (NORM, GEMM, rope, cache, pieces, merge, GEMM, total)]
    layer: Stream = [*begin, *[(name, "mlp", "forward") for name in (NORM, GEMM, SILU, GEMM, total)]]
    end: Stream = [(NORM, "head", "forward"), (GEMM, "head", "forward"), ("_topk_topp_kernel", "sampling", "forward")]
    check([(EMBED, "embedding", "forward"), *layer * 6, *end] * 3)


@pytest.mark.parametrize(("qkv", "up"), [(1, 2), (3, 2), (1, 1)])
@pytest.mark.parametrize("recompute", [False, True])
def test_training_steps(qkv: int, up: int, recompute: bool) -> None:
    head: Stream = [(NORM, "head", "forward"), (GEMM, "head", "forward"), (LOSS, "loss", "forward")]
    back: Stream = [(GEMM, "head", "backward")] * 2 + [(NORM_BACK, "head", "backward")]
    one = layers(1, qkv, up)
    again = layers(1, qkv, up, "recompute") if recompute else []
    update: Stream = [(ADAM, "optimizer", "update")] * 3
    step = [(EMBED, "embedding", "forward"), *one * 4, *head, *back, *[*again, *backward(one)] * 4, *update]
    check(step * 2)
