"""Models that embed, rank and see: what the commands assume of them without being told."""

import json

import pytest

from dragonscale.errors import InputError
from dragonscale.faces.cli import main
from dragonscale.models import load_model
from dragonscale.models.transformer import unseen_parameters


def answered(arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[dict, str]:
    """The JSON of a command, and its notes."""
    assert main([*arguments.split(), "--json"]) == 0
    printed = capsys.readouterr()
    return json.loads(printed.out), " ".join(printed.err.split())


def test_an_embedding_model_is_served_as_prompts_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """vllm#21796 on one L4: documents of 9,000 tokens, whose only work is their prefill."""
    report, notes = answered("serve qwen3-embedding-4b --on l4:1 --prompt 9000", capsys)
    assert report["workload"]["output"] == 1
    assert "a request is a document" in notes
    # its base is harder to ask as such, and as quick
    base, _ = answered("serve qwen3-4b --on l4:1 --prompt 9000 --output 0", capsys)
    assert report["configs"][0]["ttft_s"] == pytest.approx(base["configs"][0]["ttft_s"], rel=0.02)


def test_a_reranker_scores_a_document_with_its_query(capsys: pytest.CaptureFixture[str]) -> None:
    report, notes = answered("serve qwen3-reranker-0.6b --on l4:1", capsys)
    assert report["workload"]["output"] == 1
    assert "a query with one document" in notes


def test_a_vision_tower_lies_in_memory_while_adapters_are_trained(capsys: pytest.CaptureFixture[str]) -> None:
    """Qwen2.5-VL-7B is Qwen2.5-7B with a tower of 677M parameters in 16 bits."""
    question = "--method lora --on rtx3090:1 --batch 1seq --seq 1024 --plan block"
    peaks: dict[str, float] = {}
    for name in ("qwen2.5-vl-7b", "qwen2.5-7b"):
        report, _ = answered(f"train {name} {question}", capsys)
        peaks[name] = report["plans"][0]["hbm_bytes"]
    tower = unseen_parameters(load_model("qwen2.5-vl-7b"))["vision"]
    assert tower == 676_550_144
    assert peaks["qwen2.5-vl-7b"] - peaks["qwen2.5-7b"] == pytest.approx(2 * tower, rel=0.05)


def test_a_served_vision_tower_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    _, notes = answered("serve qwen2.5-vl-72b --on a100-40gb:4 --memory-fraction 0.95", capsys)
    assert "The vision tower (705M parameters) is counted as weights" in notes


def test_an_encoder_takes_documents_as_long_as_its_positions(capsys: pytest.CaptureFixture[str]) -> None:
    report, notes = answered("serve BAAI/bge-large-en-v1.5 --on l4:1", capsys)
    assert (report["workload"]["prompt"], report["workload"]["output"]) == (511, 1)
    assert "sees both ways" in notes


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("openai/whisper-large-v3", "cross-attention"),
        ("t5-11b", "cross-attention"),
        ("gpt-5.2", "not published"),
        ("nvidia/Llama-3_1-Nemotron-Ultra-253B-v1", "nemotron-nas"),
        ("zai-org/GLM-5.3-Flash", "glm5_next"),
    ],
)
def test_what_cannot_be_planned_is_refused_by_name(name: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragonscale.models.hub.reachable", lambda: False)
    with pytest.raises(InputError, match=why) as refusal:
        load_model(name)
    assert "is not planned here" in str(refusal.value)
    assert "did you mean" not in str(refusal.value)
