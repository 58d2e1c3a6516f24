"""The main job, as far as it goes today: LLaMA-3 70B on a slice of TPU v5p, counted, sharded, costed and explained.

Each step is a `dscale` command that you can repeat with your own model and chips.
"""

from dragonscale.cli import main

MODEL, SLICE = "llama3-70b", "v5p:8x16x16"
MLP = "In[B_X, D_Y] · W_in[D_X, F_Y] · W_out[F_Y, D_X] -> Out[B_X, D_Y]"
SIZES = "B=4194304,D=8192,F=28672"

STEPS = [
    (f"What does {MODEL} weigh?", ["models", MODEL, "--kv-dtype", "int8"]),
    ("What is a TPU v5p? (numbers as the book has them)", ["chips", "--source", "book", "v5p"]),
    ("When is one of its matmuls compute-bound?", ["roofline", "bf16[B,8192] @ bf16[8192,28672]", "--on", "v5p"]),
    (
        f"A batch of 4M tokens on {SLICE}: the MLP with FSDP over X and tensor parallelism over Y",
        ["shard", MLP, "--mesh", "X=512,Y=4", "--on", "v5p:8x16x16", "--sizes", SIZES, "--alternatives", "1"],
    ),
    (
        "The formulas behind it, and where it becomes bound by the network",
        ["explain", "shard", MLP, "--mesh", "X=512,Y=4", "--on", "v5p", "--sizes", SIZES],
    ),
    (
        "How long does one weight gather take?",
        ["collective", "all_gather", "117MB", "--mesh", "X=512,Y=4", "--axis", "X", "--on", "v5p:8x16x16"],
    ),
]


def run() -> int:
    for title, arguments in STEPS:
        shown = " ".join(f"'{part}'" if " " in part else part for part in arguments)
        print(
            f"\n\033[1m{title}\033[0m\n$ dscale {shown}\n" if _colour() else f"\n{title}\n$ dscale {shown}\n",
            flush=True,
        )
        code = main(arguments)
        if code:
            return code
    print("\nNext: `dscale --help`, README.md, docs/index.md.")
    return 0


def _colour() -> bool:
    import sys

    return sys.stdout.isatty()


if __name__ == "__main__":
    raise SystemExit(run())
