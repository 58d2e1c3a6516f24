"""The main job: the best plan for LLaMA-3 70B on a slice of TPU v5p, and on H100s, with its explanation.

Each step is a `dscale` command that you can repeat with your own model and chips.
"""

import sys

from dragonscale.faces.cli import main

WORK = ["--batch", "4Mi", "--seq", "8192"]
STEPS = [
    ("What does LLaMA-3 70B weigh?", ["models", "llama3-70b", "--kv-dtype", "int8"]),
    (
        "The best of all plans for 4M tokens a step on 2,048 TPU v5p, and 15T tokens of it",
        ["train", "llama3-70b", "--on", "v5p:8x16x16", *WORK, "--tokens", "15T"],
    ),
    (
        "Why: the scheme as formulas, the numbers put in, and where it becomes bound by the network",
        ["explain", "train", "fsdp+tp", "--on", "v5p:8x16x16", "--model", "llama3-70b", "--batch", "4Mi"],
    ),
    ("The same on 1,024 H100s", ["train", "llama3-70b", "--on", "h100:1024", *WORK, "--tokens", "15T", "--top", "3"]),
]


def run() -> int:
    bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")
    for title, arguments in STEPS:
        print(f"\n{bold}{title}{plain}\n$ dscale {' '.join(arguments)}\n", flush=True)
        code = main(arguments)
        if code:
            return code
    print("\nNext: `dscale --help`, README.md, docs/index.md.")
    return 0


if __name__ == "__main__":
    raise SystemExit(run())
