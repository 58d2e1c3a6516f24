"""LLaMA-3 8B, 70B and 405B: as the book plans them for TPU v5p (chapter 6), and 405B as Meta ran it on 16,384 H100s.

The book's pod of 16x20x28 chips has factors 5 and 7, so its batch here is 1120 sequences of 4096 tokens (4.6M tokens)
instead of a round 4M, and every chip has the same share.
"""

from published import PublishedRun, compare

from dragonscale.faces.cli import main

BOOK = (
    ("8B on a quarter of a pod", ["train", "llama3-8b", "--on", "v5p:8x16x16", "--batch", "4Mi", "--seq", "8192"]),
    ("70B on a whole pod", ["train", "llama3-70b", "--on", "v5p:16x20x28", "--batch", "1120seq", "--seq", "4096"]),
    ("405B on a whole pod", ["train", "llama3-405b", "--on", "v5p:16x20x28", "--batch", "4480seq", "--seq", "4096"]),
)
RUNS = (
    PublishedRun(
        "LLaMA-3 405B on 8,192 H100s, sequences of 8,192",
        "The Llama 3 Herd of Models (arXiv:2407.21783), table 4: 430 TFLOP/s per GPU, MFU 43%",
        "llama3-405b",
        "h100:8192",
        2048,
        8192,
        "megatron-2024",
        "fsdp=64,tensor=8,pipe=16,zero=2,virtual=4,schedule=interleaved",
        flops_per_s=430e12,
    ),
    PublishedRun(
        "LLaMA-3 405B on 16,384 H100s, sequences of 8,192",
        "The same table: 400 TFLOP/s per GPU, MFU 41%",
        "llama3-405b",
        "h100:16384",
        2048,
        8192,
        "megatron-2024",
        "fsdp=128,tensor=8,pipe=16,zero=2,virtual=4,schedule=interleaved",
        flops_per_s=400e12,
    ),
    PublishedRun(
        "LLaMA-3 405B on 16,384 H100s, sequences of 131,072",
        "The same table: 380 TFLOP/s per GPU, MFU 38%",
        "llama3-405b",
        "h100:16384",
        128,
        131072,
        "megatron-2024",
        "fsdp=8,context=16,tensor=8,pipe=16,zero=2,virtual=4,schedule=interleaved",
        flops_per_s=380e12,
    ),
)


def run() -> int:
    print("The book's question: 15T tokens, 40% of the peak; 70B takes 44 days on a pod of 8960 chips (chapter 6).")
    for title, arguments in BOOK:
        print(f"\n== {title}")
        code = main([*arguments, "--tokens", "15T", "--top", "3"])
        if code:
            return code
    for one in RUNS:
        compare(one)
    return 0


if __name__ == "__main__":
    raise SystemExit(run())
