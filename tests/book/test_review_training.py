"""Questions about training that were answered wrongly once: `explain train` takes its answers from the real plan's
ledger."""

import json
from typing import Any

import pytest

from dragonscale.faces.cli import main
from dragonscale.models.ffn import Mlp, Moe
from dragonscale.models.layer import Layer
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import parse_slice
from dragonscale.training.cost.evaluation import Job, judge_one, make_job
from dragonscale.training.cost.formulas import formula_verdict
from dragonscale.training.cost.wire_crossings import crossings
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.plan.stack import change
from tests.book.test_review import Capsys, answered


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert main(["explain", "train", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def book_job(feed: Mlp | Moe, where: str, batch: int, sequence: int) -> Job:
    """Layers of nothing but a feed-forward block, gradients in bf16, as the book's rules assume."""
    job = make_job(Transformer("ffn", 8192, 8, (Layer(None, feed),) * 4), parse_slice(where), batch, sequence)
    from dataclasses import replace

    return replace(job, stack=change(job.stack, "state", scatter_bytes=2.0, reduce_bytes=2.0))


def critical(job: Job, plan: Plan, variable: str, term: str) -> float:
    verdict, letters = formula_verdict(job, plan)
    found = {one.term: one for one in crossings(verdict, letters, [variable], plan)}
    assert found[term].value is not None
    return found[term].value


def test_2_the_int8_peak_is_in_the_formula_and_the_verdict() -> None:
    """A limit and what binds come from the same lines, in every format."""
    limits = {}
    for dtype in ("bf16", "int8"):
        plan = parse_plan(f"tensor=16,dtype={dtype}")
        job = book_job(Mlp(28672, gated=False), "v5e:4x4", 1, 8192)
        verdict, letters = formula_verdict(job, plan)
        (tensor,) = (one for one in crossings(verdict, letters, ["tensor"], plan) if one.term == "tensor collectives")
        real = judge_one(job, plan)
        hidden = real.wires_s["tensor collectives"] <= real.compute_s
        assert tensor.value is not None
        assert (tensor.here < tensor.value) == hidden
        limits[dtype] = tensor.value
    # Activations travel in bf16: twice the FLOP/s leave half of what lies beyond one chip.
    assert (limits["bf16"] - 1) / (limits["int8"] - 1) == pytest.approx(2, rel=0.01)


def test_3_an_moe_needs_a_batch_larger_by_its_experts_over_those_of_a_token() -> None:
    """The book: data parallelism of an MoE is bound by the network below E/k times the batch of a dense model."""
    dense = critical(
        book_job(Mlp(2880), "h100:1024", 1024, 4096), Plan(data=1024, zero=1), "batch", "gradient reduction"
    )
    moe = book_job(Moe(128, 4, 2880, 0, True), "h100:1024", 1024, 4096)
    sparse = critical(moe, Plan(data=1024, zero=1), "batch", "gradient reduction")
    assert sparse / dense == pytest.approx(128 / 4, rel=0.06)


def test_3_the_real_model_of_the_review(capsys: pytest.CaptureFixture[str]) -> None:
    found = explained(
        capsys, "dp", "--on", "h100:1024", "--model", "gpt-oss-120b", "--batch", "4M", "--stack", "generic"
    )
    (batch,) = (one for one in found["solutions"] if one["name"].startswith("gradient reduction"))
    assert batch["unit"] == "tokens"
    assert 40_000 < batch["value_si"] / 1024 < 160_000


@pytest.mark.parametrize("degree", [2, 8, 32])
def test_7_a_ratio_and_its_sentence_agree(degree: int) -> None:
    job = book_job(Mlp(28672, gated=False), "v5e:8x8", 64 // degree, 4096)
    plan = Plan(fsdp=64 // degree, tensor=degree)
    verdict, letters = formula_verdict(job, plan)
    real = judge_one(job, plan)
    for one in crossings(verdict, letters, ["tensor", "batch"], plan):
        shorter = real.wires_s[one.term] < real.compute_s
        told = one.hides == "always" if one.value is None else (one.here > one.value) == (one.hides == "above")
        assert told == shorter, one


def test_9_exact_values_and_bytes_beside_times(capsys: pytest.CaptureFixture[str]) -> None:
    plan = "fsdp=64,tensor=8,remat=block"
    found = explained(capsys, plan, "--on", "h100:512", "--model", "llama3-70b", "--batch", "512seq", "--seq", "8192")
    lines = {one["name"]: one for one in found["lines"]}
    assert lines["mlp matmuls"]["formula"] == "18*B*D*F*L*T/(C*fsdp*tensor)"
    assert lines["mlp matmuls"]["value_si"] == pytest.approx(18 * 512 * 8192 * 28672 * 80 * 8192 / (989.5e12 * 512))
    assert lines["bytes sent over fsdp"]["unit"] == "bytes"
    assert all(isinstance(one["value_si"], float) for one in found["lines"])


@pytest.mark.slow
def test_any_line_of_the_real_plan_is_a_formula(capsys: pytest.CaptureFixture[str]) -> None:
    plan = "data=2,fsdp=4,expert=4,context=2,tensor=2,pipe=4,zero=1,remat=selective,dtype=fp8"
    asked = (
        "--on",
        "h100:512",
        "--model",
        "qwen3-235b-a22b",
        "--batch",
        "512seq",
        "--seq",
        "8192",
        "--stack",
        "megatron-core",
    )
    for name in ("all_to_all", "optimizer", "K", "experts matmuls"):
        found = explained(capsys, plan, *asked, "--line", name)
        assert found["lines"], name
        assert all(one["value_si"] is not None for one in found["lines"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fdsp", "--on", "h100:8", "--model", "llama3-8b"), "did you mean 'fsdp'"),
        (("In[B, D_Y] · W[D, F_Y] -> Out[B, F_Y]", "--on", "h100:8", "--model", "llama3-8b"), "dscale shard"),
        (("fsdp=4", "--on", "h100:8", "--model", "llama3-8b"), "is for 4 chips"),
        (("fsdp", "--on", "h100", "--model", "llama3-8b"), "on a slice"),
        (("fsdp", "--on", "h100:8", "--model", "llama3-8b", "--batch", "64Ki", "--line", "mpl matmuls"), "mlp matmuls"),
        (
            ("fsdp", "--on", "h100:8", "--model", "llama3-8b", "--batch", "64Ki", "--solve", "tensor"),
            "batch, chips, fsdp, seq",
        ),
        (("fsdp", "--on", "h100:8", "--model", "llama3-8b", "--stack", "megaton"), "megatron"),
    ],
)
def test_wrong_questions_are_refused_in_a_sentence(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "train", *arguments]) == 2
    error = capsys.readouterr().err
    assert said.lower() in error.lower()
    assert "Traceback" not in error


def test_5_the_format_of_activations_on_the_wire_is_said_and_can_be_set(capsys: Capsys) -> None:
    """Half the bytes on the wire, half the tensor collectives; the matmuls stay as they are."""
    asked = ("explain", "train", "tp", "--on", "v5e:4x4", "--model", "llama3-8b", "--batch", "1M", "--dtype", "int8")
    wide, narrow = answered(capsys, *asked), answered(capsys, *asked, "--wire", "int8")

    def term(report: Any, name: str) -> float:
        return next(line["value_si"] for line in report["lines"] if line["name"] == name)

    assert term(narrow, "tensor collectives") == pytest.approx(term(wide, "tensor collectives") / 2)
    assert term(narrow, "mlp matmuls") == term(wide, "mlp matmuls")
    assert any("activations in 2 bytes" in note for note in wide["notes"])


def test_12_a_scheme_of_three_fits_a_small_slice(capsys: Capsys) -> None:
    report = answered(capsys, "explain", "train", "dp+fsdp+tp", "--on", "v5e:4x4", "--model", "llama3-8b")
    assert "dp4 fsdp2 tp2" in report["subject"]
