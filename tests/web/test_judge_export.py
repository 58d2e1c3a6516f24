"""Pasted commands are read as plans and judged as the command line judges them; no word of them reaches a file. Plans
are exported in memory."""

from pathlib import Path
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.web.answers import answer

VLLM = "vllm serve meta-llama/Meta-Llama-3-8B --tensor-parallel-size 2 --max-num-seqs 64 --seed 1 --nonsense 3"
MEGATRON = (
    "torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py --tensor-model-parallel-size 8 --num-layers 32 "
    "--hidden-size 4096 "
    "--ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8 --seq-length 4096 "
    "--micro-batch-size 1 --global-batch-size 64 --swiglu --vocab-size 128256 --bf16 --use-distributed-optimizer"
)


def asked(request: dict[str, Any]) -> dict[str, Any]:
    heard: list[dict[str, Any]] = []
    answer(request, heard.append)
    return heard[-1] if "error" in heard[-1] else {one["panel"]: one["data"] for one in heard if "panel" in one}


@pytest.mark.slow
def test_an_engines_command_is_judged_as_the_command_line_does() -> None:
    read = asked({"view": "judge", "text": VLLM, "on": "h100:2"})["read"]
    assert (read["view"], read["software"], read["unknown"], read["ignored"]) == (
        "serve",
        "vLLM",
        ["--nonsense"],
        ["--seed"],
    )
    record = asked({"view": "serve", "fields": read["fields"], "panels": ["record"]})["record"]
    own = ds.serve(on="h100:2", plan=VLLM, top=1)
    assert record["configs"][0]["tpot_s"] == pytest.approx(own.configs[0].tpot_s)
    assert record["configs"][0]["max_batch"] == own.configs[0].max_batch


def test_a_trainers_command_is_judged_as_the_command_line_does() -> None:
    read = asked({"view": "judge", "text": MEGATRON, "on": "h100"})["read"]
    assert (read["view"], read["missing"], read["fields"]["on"]) == ("train", [], "h100:8")
    record = asked({"view": "train", "fields": read["fields"], "panels": ["record"]})["record"]
    own = ds.train(plan=MEGATRON, on="h100", alone=True)
    assert record["plans"][0]["step_s"] == own.plans[0].step_s


def test_what_a_text_does_not_say_is_asked_for() -> None:
    read = asked({"view": "judge", "text": VLLM})["read"]
    assert read["missing"] == ["on"]
    assert (read["software"], read["unknown"], read["ignored"]) == ("vLLM", ["--nonsense"], ["--seed"])
    assert read["fields"]["plan"].startswith("tensor=2")


@pytest.mark.parametrize(
    "text",
    [
        "{here}/secret.toml",
        "vllm serve {here}/config.json -tp 2",
        "vllm serve meta-llama/Meta-Llama-3-8B --config {here}/secret.toml",
        "vllm serve meta-llama/Meta-Llama-3-8B --config secret.toml",
        (
            '# dscale: {{"slice": "{here}/secret.toml:8", "model": "llama3-8b"}}\nvllm serve '
            "meta-llama/Meta-Llama-3-8B -tp 2"
        ),
        "python3 -m sglang.launch_server --model-path {here} --tp 2",
        "deepspeed train.py --deepspeed_config {here}/config.json",
    ],
)
def test_no_word_of_a_pasted_text_is_opened(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way that a reader could open a file is watched, and none of the visitor's is touched."""
    import sys

    (tmp_path / "secret.toml").write_text("tensor-parallel-size = 2\nmax-num-seqs = 4242\n")
    (tmp_path / "config.json").write_text('{"model_type": "llama", "secret": 4242}')
    monkeypatch.chdir(tmp_path)
    opened: list[str] = []
    watching = [True]
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if watching[0] and event == "open" else None)
    found = asked({"view": "judge", "text": text.format(here=tmp_path), "on": "h100:2"})
    watching[0] = False
    assert not [path for path in opened if str(tmp_path) in path or path.endswith(("secret.toml", "config.json"))]
    assert "4242" not in str(found)


FIELDS = {"model": "llama3-8b", "on": "h100:8", "batch": "64seq", "seq": "4096", "plan": "fsdp8", "alone": True}
TITAN = FIELDS | {"stack": "torchtitan"}


def test_a_plan_is_exported_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = asked(
        {"view": "export", "of": "train", "fields": TITAN, "to": "torchtitan,slurm", "panels": ["targets", "files"]}
    )
    assert found["targets"]["own"] == "torchtitan" == found["targets"]["software"][0]["name"]
    names = [one["name"] for one in found["files"]["files"]]
    assert names[0] == "torchtitan.sbatch"
    assert "#SBATCH --nodes=1" in found["files"]["files"][0]["text"]
    assert found["files"]["cli"].startswith("dscale export 'fsdp8 z3 selective' --to torchtitan,slurm")
    assert "a step" in found["files"]["expected"][0]
    assert list(tmp_path.iterdir()) == []


def test_what_a_target_cannot_do_is_said() -> None:
    found = asked({"view": "export", "of": "train", "fields": FIELDS, "to": "vllm", "panels": ["files"]})
    assert "error" in found
    found = asked(
        {"view": "export", "of": "train", "fields": {**FIELDS, "on": "v5e:2x4"}, "to": "megatron", "panels": ["files"]}
    )
    assert found["error"]["kind"] in ("input", "infeasible")
    dropped = asked(
        {
            "view": "export",
            "of": "train",
            "fields": {**FIELDS, "model": "mine"},
            "dropped": {"mine": "{}"},
            "to": "megatron",
            "panels": ["files"],
        }
    )
    assert "save the config" in dropped["error"]["text"]
