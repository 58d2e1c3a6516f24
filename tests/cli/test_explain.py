"""`dscale explain` of a single chip: every kind answers, and says of a collective that nothing travels."""

import json

import pytest

from dragonscale.faces.cli import main
from dragonscale.physics.collectives.cost import KINDS

ONE_CHIP = ("h100:1", "v5e:1x1")
EINSUM = "bf16[B,D] · bf16[D,F] -> bf16[B,F]"
SPLIT = "A[I,J_X] · B[J_X,K] -> C[I,K]"
ASKED = {
    "roofline": ["roofline", EINSUM],
    "roofline of sizes": ["roofline", EINSUM, "--sizes", "B=8,D=1024,F=4096"],
    "shard": ["shard", SPLIT, "--mesh", "X=1"],
    "shard of sizes": ["shard", SPLIT, "--mesh", "X=1", "--sizes", "I=8,J=8,K=8"],
    "train": ["train", "fsdp=1", "--model", "qwen3-0.6b", "--batch", "8seq", "--seq", "1024"],
    "serve": ["serve", "qwen3-0.6b", "--plan", "tp1", "--batch", "8", "--prompt", "512", "--output", "64"],
}


@pytest.mark.parametrize("on", ONE_CHIP)
@pytest.mark.parametrize("what", ASKED)
def test_every_kind_explains_one_chip(what: str, on: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *ASKED[what], "--on", on]) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize("on", [*ONE_CHIP, "v5p"])
@pytest.mark.parametrize("size", [["34MB"], []])
@pytest.mark.parametrize("kind", KINDS)
def test_a_collective_of_one_chip_moves_nothing(
    kind: str, size: list[str], on: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mesh = [] if ":" in on else ["--mesh", "X=1"]
    assert main(["explain", "collective", kind, *size, "--on", on, *mesh, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["notes"] == ["One chip: nothing travels."]
    assert {line["value_si"] for line in found["lines"]} == {0.0}
    assert not found["crossovers"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_axis_of_one_chip_changes_no_formula(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A letter stands for more than one chip; an axis of one is left out, as in the collective's own times."""
    formulas = []
    for mesh, axis in (("X=4,Y=16", "X"), ("A=1,X=4,Y=16", "A,X")):
        asked = [kind, "34MB", "--on", "v5p:4x4x4", "--mesh", mesh, "--axis", axis, "--json"]
        assert main(["explain", "collective", *asked]) == 0
        formulas.append([line["formula"] for line in json.loads(capsys.readouterr().out)["lines"]])
    assert formulas[0] == formulas[1]


@pytest.mark.parametrize(
    ("line", "letter", "asked"),
    [
        ("gathered weights", "alive_weights", ["--on", "v5p:4x4x4", "--stack", "dragonscale"]),
        ("fragmentation", "memory_fragmentation", ["--on", "h100:64", "--stack", "torchtitan"]),
        ("activations", "memory_kept_copies", ["--on", "h100:64", "--stack", "torchtitan-eager"]),
    ],
)
def test_a_fitted_constant_stays_a_letter(
    line: str, letter: str, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A measured number is no part of a fraction: it has its name, its value and where it was fitted."""
    work = ["fsdp+tp", "--model", "llama3-8b", "--batch", "4Mi", "--seq", "8192", "--line", line, "--json"]
    assert main(["explain", "train", *work, *asked]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert all(letter in one["formula"] for one in answer["lines"])
    [note] = [note for note in answer["notes"] if note.startswith(f"{letter} = ")]
    assert len(note) > len(letter) + 30


def test_a_permute_of_one_chip_sends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collective", "permute", "34MB", "--on", "v5e:1x1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["wire_bytes_per_chip"] == 0


def test_a_roofline_is_explained_as_it_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """With the bytes of the weights alone there is one crossing, at the batch that the book's rule of thumb has."""
    command = ["explain", "roofline", "int8[B,D] @ bf16[D,F]", "--on", "v5e"]
    assert main([*command, "--weights-only"]) == 0
    told = capsys.readouterr().out
    assert "bytes over hbm = depends on D, F\n    = 2*D*F\n" in told
    assert told.count("compute = hbm at B = C/W = 240.244") == 1
    assert main(["explain", "roofline", "gelu(bf16[B,D])", "--on", "v5e", "--per-element", "10"]) == 0
    assert "= 10*B*D\n" in capsys.readouterr().out
