"""State in the host's memory: which trainers keep it there, what chip and host then hold, and what it costs."""

import json
import shlex

import pytest

from dragonscale.commands.train.plans import plan_report
from dragonscale.faces.cli import main
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import Job, judge_one, make_job, problems
from dragonscale.training.cost.optimizer_update import DISK
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.search.legal import illegal
from dragonscale.training.search.search import search
from dragonscale.training.search.space import parse_space

PARAMETERS = 32.5e9
"""Of Llama 1's 30B, which its paper calls 33B."""


def llama_job(stack: str, on: str = "a100-40gb:8", batch: int = 64) -> Job:
    return make_job(load_model("llama1-30b"), parse_slice(on), batch, 2048, stack)


@pytest.mark.parametrize("stack", ["hf", "trl", "axolotl", "llama-factory", "hf-fsdp", "deepspeed", "swift"])
@pytest.mark.parametrize(("offload", "bytes_each"), [("optimizer", 16), ("parameters", 18)])
def test_a_full_fine_tune_of_33b_runs_on_eight_a100_of_40_gb(stack: str, offload: str, bytes_each: int) -> None:
    """As somebody did with 800 GB of host memory; per parameter DeepSpeed's own estimate has as many bytes, before the
    half that it adds for buffers (estimate_zero3_model_states_mem_needs)."""
    job, plan = llama_job(stack), parse_plan(f"fsdp8 z3 block offload={offload}")
    verdict = judge_one(job, plan)
    assert not illegal(job, plan)
    assert not problems(job, plan, verdict)
    assert 8 * first_number(verdict.ledger.host_bytes) == pytest.approx(bytes_each * PARAMETERS, rel=0.01)
    assert 8 * first_number(verdict.ledger.host_bytes) < 800e9


def test_what_leaves_the_chip_is_in_the_hosts_memory() -> None:
    job = llama_job("deepspeed")
    plans = [parse_plan(f"fsdp8 z3 block offload={name}") for name in ("none", "optimizer", "parameters")]
    alone, optimizer, parameters = (judge_one(job, plan).ledger for plan in plans)
    share = PARAMETERS / 8
    assert alone.memory["optimizer"] == pytest.approx(12 * share, rel=0.01)
    assert optimizer.memory["optimizer"] == pytest.approx(2 * share, rel=0.01)  # the weights that stay
    assert "gradients" not in optimizer.memory
    assert "optimizer" not in parameters.memory
    assert parameters.memory["gathered weights"] == pytest.approx(optimizer.memory["gathered weights"])
    assert {line.part for line in parameters.hosted} == {"weights", "optimizer", "gradients"}


def test_frozen_weights_are_fetched_too() -> None:
    """QLoRA's and LoRA's base model lies in the host's memory, the adapters' state with it."""
    asked = ["train", "llama2-70b", "--method", "lora", "--on", "rtx4090:2", "--batch", "8seq", "--seq", "2048"]
    assert main([*asked, "--stack", "hf", "--plan", "fsdp2 block offload=parameters", "--alone", "--json"]) == 0


def test_transfers_and_the_hosts_update_show_in_the_step() -> None:
    job = llama_job("deepspeed")
    plan = parse_plan("fsdp8 z3 block offload=parameters")
    terms = {name: judge_one(job, plan).ledger.by("term", "exposed_s")[name] for name in ("host offload", "optimizer")}
    share, link = PARAMETERS / 8, job.slice.chip.host_link
    # eight microbatches: weights fetched twice in each, gradients down in each and up again in all but the first
    assert terms["host offload"] == pytest.approx(share * 2 * (2 * 8 + 15) / link, rel=0.01)
    assert terms["optimizer"] == pytest.approx(share * 30 / 40e9, rel=0.01)


@pytest.mark.parametrize("offload", ["optimizer", "parameters"])
def test_a_search_finds_the_step_that_is_judged(offload: str) -> None:
    job = llama_job("hf")
    best = search(job, parse_space(f"offload={offload}"), 1).best[0]
    assert best.plan.offload == offload
    verdict = judge_one(job, best.plan)
    assert best.seconds == pytest.approx(first_number(verdict.seconds))
    assert best.hbm_bytes == pytest.approx(first_number(verdict.hbm_bytes))


@pytest.mark.parametrize(
    ("stack", "plan", "why"),
    [
        ("hf", "fsdp8 z2 block offload=parameters", "fetches weights from the host where zero=3 gathers them"),
        ("hf", "fsdp8 z3 block optimizer=adam8 offload=optimizer", "bitsandbytes' 8-bit states are for GPUs"),
        ("megatron-core", "fsdp8 z3 block offload=parameters", "cannot run offload=parameters, only none, optimizer"),
        ("unsloth", "dp8 z0 block offload=optimizer", "cannot run offload=optimizer, only none"),
        ("torchtitan", "fsdp8 z3 block offload=optimizer", "cannot run offload=optimizer, only none, parameters"),
    ],
)
def test_what_a_trainer_cannot_offload_is_refused(stack: str, plan: str, why: str) -> None:
    assert any(why in text for text in illegal(llama_job(stack), parse_plan(plan)))


ASKED = ["train", "llama1-30b", "--method", "full", "--on", "a100-40gb:8", "--batch", "64seq", "--seq", "2048"]


def test_a_job_that_does_not_fit_is_offered_the_hosts_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(ASKED) == 3
    text = " ".join(capsys.readouterr().out.split())
    assert "--fix offload=optimizer fits here: fsdp8" in text
    assert "with 521 GB of memory of each host" in text
    assert main([*ASKED, "--fix", "offload=optimizer", "--json"]) == 0
    best = json.loads(capsys.readouterr().out)
    assert best["plans"][0]["host_bytes"] * best["plans"][0]["host_chips"] == pytest.approx(16 * PARAMETERS, rel=0.01)
    assert any("an estimate that no measured step has confirmed" in note for note in best["notes"])


def test_a_plan_that_does_not_fit_is_offered_the_hosts_memory() -> None:
    report = plan_report(llama_job("hf"), parse_plan("fsdp8 z3 none"))
    assert "remat=block,offload=optimizer leaves 19.3 GB, which fits, and needs 521 GB" in report.advice


def test_a_host_without_enough_memory_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """No number of bytes of a chip is missing there."""
    command = "train llama3-8b --on rtx4090:1 --batch 8seq --seq 2048 --stack axolotl --fix offload=parameters"
    assert main(shlex.split(command)) == 3
    text = " ".join(capsys.readouterr().out.split())
    assert "it needs 145 GB of the host's memory per chip, 13% more than its share of 128 GB" in text


NEMOTRON = ["train", "nemotron3-nano", "--on", "h100:16", "--dtype", "fp8", "--batch", "1024seq", "--seq", "8192"]
MESH = "fsdp=2,expert=8,pipe=1,zero=1,remat=none,mb1"


def test_gradients_as_benchmarks_have_them_are_offered_where_that_is_enough(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """NVIDIA's published mesh: it fits with the gradients that its benchmark has, and not with fp32's."""
    given = [*NEMOTRON, "--plan", "dp2 ep8 z1", "--alone"]
    assert main(given) == 3
    text = " ".join(capsys.readouterr().out.split())
    assert "--numerics benchmark (gradients in bf16, as in published benchmarks) leaves 80.2 GB, which fits" in text
    assert main([*given, "--numerics", "benchmark"]) == 0
    capsys.readouterr()
    assert main([*NEMOTRON, "--fix", MESH]) == 3
    assert "--numerics benchmark fits here" in capsys.readouterr().out


def test_state_on_a_disk_passes_through_pinned_buffers_and_takes_as_long_as_the_disk() -> None:
    """ZeRO-Infinity: a 10B model on two A100s took hundreds of seconds a step, 1.5 TFLOP/s a GPU, and no state on the
    GPUs (github.com/deepspeedai/DeepSpeed/issues/2159)."""
    job = make_job(load_model("llama1-7b"), parse_slice("a100-40gb:2"), 8, 1024, "deepspeed")
    hosted, on_disk = (judge_one(job, parse_plan(f"fsdp2 z3 block offload={where}")) for where in ("cpu", "nvme"))
    state_bytes = 12 * 6.7e9  # master copy and moments in fp32
    # in and out, two chips on one host's disk
    assert float(on_disk.seconds) - float(hosted.seconds) > 2 * state_bytes / DISK
    assert float(on_disk.hbm_bytes) == float(hosted.hbm_bytes)
    assert float(on_disk.ledger.host_bytes) < 0.5 * float(hosted.ledger.host_bytes)
