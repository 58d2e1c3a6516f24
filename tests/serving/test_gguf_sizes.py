"""Sizes of published GGUF files in GiB, against the bytes of weights that a deployment holds."""

import pytest

from dragonscale.physics.kernels.dtypes import FORMATS
from dragonscale.physics.stored_formats import BLOCKS, GROUPS, read_format
from dragonscale.serving.iteration.deployment import deploy
from dragonscale.serving.iteration.resident_memory import bytes_of, weight_lines

# tools/quantize/README.md of ggml-org/llama.cpp (Llama 3.1 8B)
LLAMA_8B = {
    "iq1_s": 1.87, "iq1_m": 2.01, "iq2_xxs": 2.23, "iq2_xs": 2.42, "iq2_s": 2.56, "iq2_m": 2.74, "iq3_xxs": 3.04,
    "iq3_xs": 3.27, "iq3_s": 3.42, "iq3_m": 3.52, "iq4_xs": 4.17, "iq4_nl": 4.38, "q2_k_s": 2.78, "q2_k": 2.95,
    "q3_k_s": 3.41, "q3_k_l": 4.02, "q4_k_s": 4.36, "q4_k_m": 4.58, "q5_k_s": 5.21, "q5_k_m": 5.33, "q6_k": 6.14,
    "q8_0": 7.95,
}  # fmt: skip
# github.com/XiongjieDai/GPU-Benchmarks-on-LLM-Inference (Llama 3 70B)
LLAMA_70B = {
    "iq1_s": 14.29, "iq2_xxs": 17.79, "iq2_m": 22.46, "iq3_xxs": 25.58, "iq3_m": 29.74, "iq4_xs": 35.30, "q2_k": 24.56,
    "q3_k_m": 31.91, "q3_k_l": 34.59, "q4_k_s": 37.58, "q4_k_m": 39.60, "q5_k_m": 46.52, "q6_k": 53.91, "q8_0": 69.83,
}  # fmt: skip
# As llama-bench prints them: ggml-org/llama.cpp#3084, #6017, discussion 15396, benches/; geerlingguy/ai-benchmarks#43
OTHERS = [
    ("llama2-7b", "q4_0", 3.56), ("llama2-7b", "q8_0", 6.67), ("llama2-7b", "q4_k_m", 3.80),
    ("llama2-7b", "q6_k", 5.15),
    ("llama3.2-3b", "q4_k_m", 1.87), ("qwen2.5-7b", "q8_0", 7.54), ("qwen3-30b-a3b", "q8_0", 30.25),
    ("gpt-oss-20b", "mxfp4_moe", 11.27), ("gpt-oss-120b", "mxfp4_moe", 59.02),
]  # fmt: skip
FILES = [("llama3.1-8b", kind, size) for kind, size in LLAMA_8B.items()]
FILES += [("llama3-70b", kind, size) for kind, size in LLAMA_70B.items()] + OTHERS


@pytest.mark.parametrize(("model", "kind", "gib"), FILES)
def test_a_file_is_as_large_as_published(model: str, kind: str, gib: float) -> None:
    deployment = deploy(model, "m3ultra:1", f"tensor=1,weights={kind},compute=fp16", "llama.cpp")
    assert bytes_of(weight_lines(deployment)) / 2**30 == pytest.approx(gib, rel=0.011)


def test_unpacking_kernels_read_the_bytes_of_their_blocks() -> None:
    for kind, (elements, size) in {**BLOCKS, **GROUPS}.items():
        for compute in ("fp16", "int8"):
            assert FORMATS[f"{kind}_{compute}"].weight == size / elements


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Q4_K_M", "q4_k_m"), ("q4km", "q4_k_m"), ("Q4_K", "q4_k_m"), ("UD-Q4_K_XL", "q4_k_m"),
        ("UD-IQ2_XXS", "iq2_xxs"),
        ("UD-Q2_K_XL", "q2_k"), ("i1-IQ3_M", "iq3_m"), ("AWQ", "int4"), ("gptq-g32", "int4_g32"), ("GPTQ 8bit", "int8"),
        ("exl2 4.65bpw", "exl2_4.65"), ("exl3-3.0bpw", "exl3_3"), ("EXL3", "exl3_4"), ("mlx-6bit", "mlx6"),
        ("bnb-nf4", "nf4"), ("F16", "fp16"), ("bfloat16", "bf16"), ("fp8", "fp8"), ("q9_z", "q9_z"),
    ],
)  # fmt: skip
def test_formats_in_the_words_of_files(text: str, name: str) -> None:
    assert read_format(text) == name
