"""DeepSeek-V3 on 2,048 H800s, beside the planner.

Published: 180 thousand GPU-hours for a trillion tokens, 16-way pipeline (DualPipe), 64-way experts, ZeRO-1, fp8,
batches of 15,360 sequences of 4,096 tokens; no tensor parallelism. That is 19.9 s a step.

The time comes out within a tenth, and the plan fits: norms, up-projections of the attention and outputs of SwiGLU
run again, as the report has it.
"""

from published import PublishedRun, compare

TOKENS = 15360 * 4096
STEP = 180e3 * 3600 / 2048 / (1e12 / TOKENS)

RUNS = (
    PublishedRun(
        "DeepSeek-V3 on 2,048 H800s",
        "DeepSeek-V3 Technical Report (arXiv:2412.19437), sections 1 and 3.2",
        "deepseek-v3",
        "h800:2048",
        15360,
        4096,
        "hai-llm",
        "fsdp=2,expert=64,pipe=16,remat=selective,zero=1,dtype=fp8,schedule=dualpipe",
        STEP,
        fix="dtype=fp8,microbatch=1,context=1,schedule=dualpipe",
    ),
)


if __name__ == "__main__":
    for one in RUNS:
        compare(one)
