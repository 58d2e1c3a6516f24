"""Bad input of every kind: one sentence on stderr, exit code 2, nothing on stdout, no traceback."""

from pathlib import Path

import pytest

from dragonscale.faces.cli import main

MATMUL = "A[I_X, J] @ B[J, K] -> C[I_X, K]"

WRONG = {
    "unknown command": (["rooflin"], "rooflin"),
    "unknown flag": (["chips", "--jsn"], "--jsn"),
    "missing argument": (["roofline"], "EXPR is missing"),
    "two things missing": (["train"], "Give a model, such as llama3-8b, and --on, the slice to run on"),
    "a mixed fleet in --on": (
        ["simulate", "llama3-8b", "--on", "h100:1,l40s:1", "--rate", "4/s"],
        "--on h100:1 --pool l40s:1",
    ),
    "unknown chip": (["chips", "v5x"], "There is no chip 'v5x'; did you mean 'v5"),
    "unknown source": (["chips", "v5e", "--source", "boook"], "did you mean 'book'"),
    "unknown model": (["models", "lama3-70b"], "did you mean"),
    "unknown collective": (["collective", "allgathr", "1MB", "--on", "v5e:4x4"], "did you mean"),
    "misspelt axis": (
        ["collective", "all_gather", "1MB", "--axis", "Q", "--on", "v5e:4x4"],
        "There is no mesh axis 'Q'",
    ),
    "axis not in mesh": (["shard", MATMUL, "--mesh", "Y=4"], "add X=… to --mesh"),
    "axis used twice": (["shard", "A[I_X, J_X] @ B[J, K]", "--mesh", "X=4"], "an axis can split an array only once"),
    "indivisible dim": (["shard", MATMUL, "--mesh", "X=4", "--sizes", "I=10,J=8,K=8"], "does not divide into 4 parts"),
    "negative size": (["shard", MATMUL, "--mesh", "X=4", "--sizes", "I=-8"], "negative"),
    "zero size": (["shard", MATMUL, "--mesh", "X=4", "--sizes", "I=0"], "at least one element"),
    "zero axis": (["shard", MATMUL, "--mesh", "X=0"], "at least one chip"),
    "fractional size": (["shard", MATMUL, "--mesh", "X=4", "--sizes", "I=2.5"], "whole number"),
    "size of no dim": (["shard", MATMUL, "--mesh", "X=4", "--sizes", "Q=8"], "There is no dim"),
    "bare quantity": (["collective", "all_gather", "34", "--on", "v5e:4x4"], "has no unit"),
    "wrong unit": (["collective", "all_gather", "34ms", "--on", "v5e:4x4"], "which is no unit of size"),
    "infinite": (["collective", "all_gather", "1e999GB", "--on", "v5e:4x4"], "not finite"),
    "impossible slice": (["collective", "all_gather", "1GB", "--on", "v5e:32x32"], "Possible: v5e:16x16*4, v5e:16x16"),
    "torus of gpus": (["collective", "all_gather", "1GB", "--on", "h100:4x4"], "counted"),
    "half a node": (["collective", "all_gather", "1GB", "--on", "h100:12"], "whole nodes of 8"),
    "wrong rank": (["collective", "all_gather", "1GB", "--on", "v5p:4x4"], "3D torus"),
    "mesh of another size": (["collective", "all_gather", "1GB", "--on", "v5e:4x4", "--mesh", "X=4"], "must agree"),
    "garbage topology": (["collective", "all_gather", "1GB", "--on", "v5e:4y4"], "topology"),
    "unbalanced": (["roofline", "bf16[B,8192 @ bf16[8192,28672]", "--on", "v5e"], "is not an array"),
    "unequal inner dims": (["roofline", "bf16[B,8192] @ bf16[819,28672]", "--on", "v5e"], "8192 meets one of 819"),
    "unknown dtype": (["roofline", "bf15[B,8192] @ bf16[8192,28672]", "--on", "v5e"], "There is no dtype 'bf15'"),
    "unknown memory": (["roofline", "bf16[B,8] @ bf16[8,8]", "--on", "v5e", "--memory", "hbmm"], "did you mean 'hbm'"),
    "sharded roofline": (["roofline", "bf16[B_X,8] @ bf16[8,8]", "--on", "v5e"], "dscale shard"),
    "two arrows": (["shard", "A[I] -> B[I] -> C[I]", "--mesh", "X=2"], "two arrows"),
    "plot ending": (["roofline", "bf16[B,8] @ bf16[8,8]", "--on", "v5e", "--plot", "x.bmp"], "should end in"),
    "missing file": (["models", "nowhere/config.json"], "cannot be read"),
    "missing chip file": (["chips", "nowhere.toml"], "cannot be read"),
    "missing rows": (["validate", "collectives", "nowhere.csv"], "cannot be read"),
    "filled too much": (["collective", "all_to_all", "1GB", "--on", "v5e:4x4", "--filled", "2"], "at most 1"),
}


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must be refused; returns its one sentence."""
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("dscale: ")
    assert printed.err.count("\n") == 1
    assert "Traceback" not in printed.err
    return printed.err


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, expected = WRONG[name]
    assert expected in refused(arguments, capsys)


FILES = {
    "empty": b"",
    "spaces": b"  \n\n",
    "binary": bytes(range(256)) * 10,
    "garbage": b"\xff\xfe][}{" * 1_700_000,
    "brackets": b"[" * 100_000,
    "json list": b"[1, 2, 3]",
    "json text": b'"hello"',
    "half json": b'{"model_type": "llama", "hidden',
    "no fields": b"{}",
    "only a type": b'{"model_type": "llama"}',
    "wrong types": b'{"model_type": "llama", "hidden_size": "wide", "num_hidden_layers": []}',
    "negative": (
        b'{"model_type": "llama", "hidden_size": -5, "num_hidden_layers": 2, "num_attention_heads": 2, '
        b'"intermediate_size": 8, "vocab_size": 8}'
    ),
    "toml": b'name = "x"\n',
}


@pytest.mark.parametrize("ending", ["config.json", "chip.toml", "rows.csv"])
@pytest.mark.parametrize("name", FILES)
def test_wrong_file_is_refused(name: str, ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / ending
    path.write_bytes(FILES[name])
    command = {"config.json": ["models"], "chip.toml": ["chips"], "rows.csv": ["validate", "collectives"]}[ending]
    refused([*command, str(path)], capsys)
