"""Starts of engines: whether a launch starts, what refuses it, and the context that it is for."""

import dragonscale as ds


def test_the_context_is_no_longer_than_the_launch():
    """vllm-project/vllm#14452: this line starts on an RTX 5090."""
    line = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192 --enforce-eager"
    report = ds.serve("llama3.1-8b", on="rtx5090:1", plan=line)
    assert report.verdict.startswith("Starts")
    assert report.largest_context == 8192


def test_more_sequences_than_state_blocks_do_not_start():
    """vllm-project/vllm#49064."""
    line = "vllm serve Qwen/Qwen3.5-27B --max-model-len 132000 --gpu-memory-utilization 0.90"
    refused = ds.serve("qwen3.5-27b", on="h100:1", plan=line)
    assert refused.verdict.startswith("Refuses to start")
    assert "--max-num-seqs" in refused.advice
    started = ds.serve("qwen3.5-27b", on="h100:1", plan=f"{line} --max-num-seqs 64")
    assert started.verdict.startswith("Starts")


def test_a_static_fraction_over_the_card_does_not_fit():
    """sgl-project/sglang#1869: Gemma 2 9B on 24 GB."""
    over = ds.serve("gemma2-9b", on="rtx3090:1", engine="sglang", memory_fraction=0.9)
    assert not over.configs
    for fraction in (0.75, 0.8, 0.85, 0.9, 0.95):
        report = ds.serve("gemma2-9b", on="rtx3090:1", engine="sglang", memory_fraction=fraction)
        for row in report.configs:
            assert row.hbm_bytes <= row.hbm_limit_bytes


def test_windows_that_keep_all_tokens_hold_fewer():
    report = ds.serve("gemma3-27b", on="h100:2", engine="vllm", plan="tp2", batch="4")
    memory = report.configs[0].memory
    assert 0 < memory.whole_windows_tokens < 0.5 * memory.kv_cache_tokens
    plain = ds.serve("llama3-8b", on="h100:1", engine="vllm", plan="tp1", batch="4")
    assert not plain.configs[0].memory.whole_windows_tokens
