"""Answers fit a screen: at most 24 lines at 80 columns without `--explain`, the verdict first.

Before answers had a level, the same commands took 15 to 98 lines, 43 in the middle.
"""

import contextlib
import io
import shlex

import pytest

from dragonscale.faces.cli import main

MAX_LINES = 24

# Commands, and how the first line of their answers begins.
ANSWERS = {
    "serve llama3-8b --on h100:1": "Fits: tp1 on h100:1",
    "serve llama3.1-8b --on rtx3090:1 --prompt 28000 --output 1000": "Barely fits: tp1 on rtx3090:1",
    "serve llama3-8b --on 4090": "Fits: tp1 on rtx4090:1",
    "serve llama3-70b --on h100:8 --tpot 30ms --ttft 1s": "Meets the targets: ",
    "serve llama3-70b --on h100:8 --tpot 8ms": "Misses the targets: TPOT is ",
    "serve llama3-70b --on h100 --rate 20/s --ttft p95:1s --tpot p95:40ms": "Meets the targets: ",
    "serve llama3-70b --on h100:4 --use-case chat --users 500": "Meets the targets: ",
    "serve deepseek-v3 --on h200:8": "Fits: ",
    "serve deepseek-v3 --on h200:16 --disaggregate --prompt 32768 --output 512": "Not worth it: disaggregated ",
    "serve deepseek-v3 --on h100:96 --prompt 4096 --output 1024": "Fits: ",
    "serve deepseek-v3 --on a6000:8": "Does not fit a6000:8: 39.9 GB a chip are missing; it fits on a6000:16 or with",
    "serve gpt-oss-120b --on h100:1": "Fits: ",
    "serve llama3-70b --on h100,h200,b200": "Fits: ",
    'serve --plan "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 120000" --on rtx3090:1': "Refuses",
    "train llama3-8b --on h100:8 --batch 1M --seq 8192": "Fits: ",
    "train llama3-70b --on h100:512 --batch 4M --seq 8k": "Fits: ",
    "train deepseek-v3 --on h100:512 --batch 15360seq --seq 4096": "Fits: ",
    "train llama2-70b --method full --on a100:8 --batch 32seq --seq 2048": "Does not fit a100:8: ",
    "train llama3-70b --method qlora --on a10g:4": "Fits: ",
    "train llama3-8b --on h100:64 --batch 2M --seq 8192 --plan fsdp64 --measured 38%": "Slow: ",
    "simulate llama3-70b --on h100:8 --rate 4/s --prompt 2048 --output 256 --ttft p95:2s": "Holds: ",
    "simulate llama3-70b --on h100:8 --use-case chat --users 100": "Holds: ",
    "simulate llama3-70b --on h100:4 --rate 20/s --prompt 2048 --output 256 --ttft p95:500ms": "Does not hold: ",
    "rl qwen3-8b --on h100:8": "Fits: ",
    'compare llama3-70b --on h100:64 "tp8 fsdp8" "fsdp64" --batch 1M --seq 8192': "A (fsdp8 tp8 z3 none) is fastest; B",
}


@pytest.mark.parametrize("command", ANSWERS)
def test_an_answer_is_a_page_that_begins_with_its_verdict(command: str) -> None:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
        main(shlex.split(command))
    lines = output.getvalue().rstrip("\n").splitlines()
    assert len(lines) <= MAX_LINES, output.getvalue()
    assert lines[0].startswith(ANSWERS[command])
    # commands to copy are never wrapped
    assert all(len(line) <= 80 for line in lines if not line.startswith("  dscale "))
