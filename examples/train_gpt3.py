"""GPT-3 175B on A100s, as Megatron-LM ran it, beside the planner."""

from published import PublishedRun, compare

RUNS = (
    PublishedRun(
        "GPT-3 175B on 1,024 A100s, everything recomputed",
        "NVIDIA/Megatron-LM v2.5 README, GPT-3 example: 138 TFLOP/s per GPU counting recomputation",
        "gpt3-175b",
        "a100:1024",
        1536,
        2048,
        "megatron-2021",
        "data=8,tensor=8,pipe=16,remat=block,zero=0,sequence=false",
        32.0,
        fix="sequence=false",
    ),
    PublishedRun(
        "GPT-3 175B on 64 A100s, everything recomputed",
        "Korthikanti et al. 2022 (arXiv:2205.05198), table 5",
        "gpt3-175b",
        "a100:64",
        64,
        2048,
        "megatron-2022",
        "tensor=8,pipe=8,virtual=3,schedule=interleaved,remat=block,zero=0,sequence=false",
        18.13,
        fix="sequence=false",
    ),
    PublishedRun(
        "GPT-3 175B on 64 A100s, selective recomputation and sequence parallelism",
        "The same table",
        "gpt3-175b",
        "a100:64",
        64,
        2048,
        "megatron-2022",
        "tensor=8,pipe=8,virtual=3,schedule=interleaved,remat=selective,zero=0",
        13.75,
    ),
)


if __name__ == "__main__":
    for one in RUNS:
        compare(one)
