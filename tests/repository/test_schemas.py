"""The published JSON Schemas describe what the commands print."""

import json
from typing import Any

import pytest

from dragonscale.faces.cli import main
from tools.refresh_docs import ROOT
from tools.write_schemas import DIRECTORY, RECORDS, schema_text

COMMANDS = {
    "calc": ["calc", "1e12 FLOP / v5e.bf16"],
    "chip": ["chips", "v5e"],
    "collective": ["collective", "all_gather", "34MB", "--axis", "X", "--on", "v5e:8x16"],
    "compare": ["compare", "tp8", "fsdp8", "--model", "llama3-8b", "--on", "h100:8", "--batch", "64seq", "--seq", "8k"],
    "estimate": ["estimate", "llama3-8b"],
    "explain": ["explain", "roofline", "bf16[B,128] @ bf16[128,256]", "--on", "h100"],
    "hlo-layout": ["hlo", "f32[3,5]{1,0:T(2,2)}"],
    "hlo-op": ["hlo", "%a = f32[8]{0} add(f32[8]{0} %x, f32[8]{0} %y)", "--on", "v5e"],
    "hlo-program": ["hlo", "HloModule m\nENTRY e {\n  p = f32[8] parameter(0)\n  ROOT a = f32[8] add(p, p)\n}"],
    "learn": ["learn"],
    "learn-chapter": ["learn", "rooflines"],
    "learn-problem": ["learn", "rooflines.time-of-flops", "--solution"],
    "model": ["models", "llama3-8b"],
    "profile": ["profile", str(ROOT / "examples" / "profiles" / "h200_decode.xplane.pb.gz")],
    "roofline": ["roofline", "bf16[B,128] @ bf16[128,256]", "--on", "h100"],
    "train": [
        "train",
        "llama3-8b",
        "--on",
        "h100:8",
        "--batch",
        "512Ki",
        "--seq",
        "8192",
        "--plan",
        "fsdp=8,remat=block",
    ],
    "rl": ["rl", "llama3-8b", "--on", "h100:8", "--stack", "nemo-rl", "--mode", "colocated", "--output", "1k"],
    "serve": ["serve", "llama3-8b", "--on", "h100:1", "--plan", "tensor=1", "--batch", "8"],
    "simulate": ["simulate", "llama3-8b", "--on", "h100:1", "--rate", "2/s", "--requests", "20"],
    "traffic": ["traffic", str(ROOT / "examples" / "traces" / "azure_sample.csv")],
    "shard": ["shard", "A[I_X, J] @ B[J, K] -> C[I_X, K]", "--mesh", "X=4"],
}


@pytest.mark.parametrize("name", RECORDS)
def test_schema_is_current(name: str) -> None:
    assert (DIRECTORY / f"{name}.json").read_text() == schema_text(name), "run `make docs`"


def test_every_schema_is_checked_against_output() -> None:
    """Those of `verify` and `sweep` are checked where a compiler need not run, in tests/cli/test_verify.py, that of the
    score of one run where there are logs, in tests/evidence/logs, that of `calibrate` where there are measurements."""
    assert set(RECORDS) == {*COMMANDS, "verify", "sweep", "validate-run", "calibrate"}


def test_the_page_lists_every_schema() -> None:
    text = (ROOT / "docs" / "json.md").read_text()
    assert [name for name in RECORDS if f"(schemas/{name}.json)" not in text] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_output_has_the_schema_s_keys(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMANDS[name], "--json"]) == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    schema = json.loads(schema_text(name))
    definition = schema["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
    assert set(printed) == set(definition["properties"])
    assert set(definition["required"]) <= set(printed)
