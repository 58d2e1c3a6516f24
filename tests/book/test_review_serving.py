"""Questions of the book about serving that were once answered wrongly."""

import json

import pytest

from dragonscale.course.closed_forms.serving_splits import prefill_degree
from dragonscale.faces.cli import main
from dragonscale.physics.hardware import load_chip


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main(["explain", "serve", *words, "--json"]) in (0, None)
    return json.loads(capsys.readouterr().out)


def solution(found: dict, name: str) -> float:
    return next(line["value_si"] for line in found["solutions"] if line["name"].startswith(name))


def test_int8_limits_say_what_travels_and_take_another_format(capsys: pytest.CaptureFixture[str]) -> None:
    """By the book's rule int8 FLOPs halve the degrees that hide, and int8 on the wire doubles them again (F = 16384:
    3.74 and 7.49)."""
    plan = "tensor=16,weights=int8,compute=int8,kv=int8"
    wide = asked(capsys, "llama3-70b", "--on", "v5e:16x16", "--plan", plan, "--batch", "16")
    narrow = asked(capsys, "llama3-70b", "--on", "v5e:16x16", "--plan", f"{plan},wire=int8", "--batch", "16")
    assert any("activations between chips in bf16" in note for note in wide["notes"])
    assert any("activations between chips in int8" in note for note in narrow["notes"])
    degrees = [solution(one, "max TP hidden in prefill") - 1 for one in (wide, narrow)]
    # Beyond the eight KV heads each chip computes a head of its own, which hides a little more.
    assert degrees[1] == pytest.approx(2 * degrees[0], rel=0.02)
    chip = load_chip("v5e")
    assert prefill_degree(16384, chip, compute="int8") == pytest.approx(3.74, abs=0.005)
    assert prefill_degree(16384, chip, compute="int8", wire="int8") == pytest.approx(7.49, abs=0.005)


def test_an_answer_of_one_token_has_no_step_between_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "llama3-8b", "--on", "h100", "--output", "1")
    assert not any(line["name"].startswith("TPOT") for line in found["lines"])
    assert any("no decode step" in note for note in found["notes"])
    rate = next(line for line in found["lines"] if line["name"] == "requests/s at best")
    prefill = next(line for line in found["lines"] if line["name"].startswith("prefill, kernel by kernel"))
    assert rate["value_si"] == pytest.approx(1 / prefill["value_si"], rel=1e-9)


def test_any_line_of_the_real_iteration_is_a_formula_with_an_exact_value(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "llama3-70b", "--on", "h100:8", "--plan", "tensor=8", "--batch", "64", "--line", "mlp")
    first = next(line for line in found["lines"] if line["name"].endswith("U+G (matmul), FLOPs"))
    assert first["formula"] == "4*B*D*F/tensor"
    assert first["value_si"] == 4 * 64 * 8192 * 28672 / 8
