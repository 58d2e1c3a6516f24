"""Every term and every part of memory of steps that use each choice once: what a change of the physics changes is
seen here first.

`accounts.json` has for each term FLOPs, bytes moved in HBM and sent, and seconds at datasheet rates, expected and
exposed. After a change that is meant, `python -m tests.training.test_accounts` writes it anew; read what differs.
"""

from pathlib import Path
from typing import Any

import pytest

from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import judge_one, make_job
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.plan.tuning import Tuning
from tests.accounts import assert_equal, read_account, write_accounts

ACCOUNTS = Path(__file__).with_name("accounts.json")
QUANTITIES = ("flops", "hbm_bytes", "wire_bytes", "bound_s", "expected_s", "exposed_s")
SEQUENCE = 4096
CASES: dict[str, tuple[str, str, str, str]] = {
    "zero 3": ("llama3-8b", "h100:16", "generic", "fsdp=16"),
    "zero 2 beside replicas": ("llama3-8b", "h100:16", "torchtitan", "data=2,fsdp=8,zero=2"),
    "tensor": ("llama3-8b", "h100:16", "megatron-core", "tensor=8,data=2,zero=1,remat=selective"),
    "no sequence parallelism": ("llama3-8b", "h100:16", "generic", "tensor=2,fsdp=8,sequence=False"),
    "pipeline": ("llama3-8b", "h100:16", "megatron-lm", "pipe=4,tensor=2,data=2,zero=1,virtual=2,schedule=interleaved"),
    "split backward": ("llama3-8b", "h100:16", "megatron-core", "pipe=4,data=4,zero=1,schedule=zb-h1"),
    "ring attention": ("llama3-8b", "h100:16", "generic", "context=4,fsdp=4,context_by=ring,remat=selective"),
    "ring attention under a compiler": (
        "llama3-8b",
        "v5p:2x2x4",
        "maxtext",
        "context=4,fsdp=4,context_by=ring,remat=selective",
    ),
    "gathered keys": ("llama3-8b", "h100:16", "torchtitan", "context=4,fsdp=4"),
    "ulysses": ("llama3-8b", "h100:16", "generic", "context=4,fsdp=4,context_by=ulysses"),
    "experts": ("mixtral-8x7b", "h100:64", "megatron-core", "expert=8,data=8,zero=1,tensor=1"),
    "experts in slices": ("mixtral-8x7b", "h100:64", "generic", "expert=4,fsdp=4,tensor=4,etp=True"),
    "latent attention": ("deepseek-v2-lite", "h100:64", "generic", "expert=8,fsdp=8"),
    "fp8": ("llama3-8b", "h100:16", "generic", "fsdp=16,dtype=fp8,remat=block"),
    "fp8 in blocks": ("mixtral-8x7b", "b200:64", "megatron-core", "expert=8,data=8,zero=1,dtype=mxfp8"),
    "adam in 8 bits": ("llama3-8b", "h100:16", "generic", "fsdp=16,optimizer=adam8"),
    "muon": ("llama3-8b", "h100:16", "generic", "fsdp=16,optimizer=muon"),
    "muon on flat weights": ("deepseek-v2-lite", "h100:64", "megatron-core", "expert=8,data=8,zero=1,optimizer=muon"),
    "adafactor": ("llama3-8b", "v5p:2x2x4", "maxtext", "fsdp=16,optimizer=adafactor,remat=block"),
    "optimizer on the host": ("llama3-8b", "h100:16", "torchtitan", "fsdp=16,offload=optimizer"),
    "optimizer on the host, deepspeed": ("llama3-8b", "h100:16", "deepspeed", "fsdp=16,offload=optimizer,remat=block"),
    "weights on the host": ("llama3-8b", "h100:16", "deepspeed", "fsdp=16,offload=parameters,remat=block"),
    "activations on the host": ("llama3-8b", "h100:16", "generic", "fsdp=16,offload=activations:8"),
    "saved on the host": ("llama3-8b", "v5p:2x2x4", "maxtext", "fsdp=16,remat=offload"),
    "a torus": ("llama3-8b", "v5p:2x2x4", "maxtext", "fsdp=4,tensor=4"),
    "pods": ("llama3-8b", "v5e:4x4*2", "maxtext", "data=2,fsdp=16,remat=block"),
    "one chip": ("llama3.2-1b", "h100:1", "torchtitan", "microbatch=2"),
    "eager": ("llama3.2-1b", "h100:8", "torchtitan-eager", "fsdp=8"),
    "eager without kernels": ("llama3.2-1b", "h100:8", "hf", "fsdp=8,remat=block"),
    "xla": ("llama3-8b", "h100:16", "xla-gpu", "fsdp=16"),
    "own programs": ("llama3-8b", "v5p:2x2x4", "dragonscale", "fsdp=16,remat=block"),
    "windows": ("gemma3-4b", "h100:16", "generic", "fsdp=16"),
    "states": ("jamba-52b", "h100:64", "generic", "fsdp=64"),
    "delta rule": ("qwen3-next-80b-a3b", "h100:64", "generic", "fsdp=8,expert=8"),
    "lora": ("llama3-8b", "h100:16", "torchtune", "fsdp=16"),
    "qlora": ("llama3-8b", "h100:1", "unsloth", "remat=block"),
}
TUNINGS = {"lora": Tuning("lora", 16), "qlora": Tuning("qlora", 16, frozen="nf4")}


def account(name: str) -> dict[str, Any]:
    """The step of a case: its seconds, memory and terms."""
    model, where, stack, plan = CASES[name]
    piece = parse_slice(where)
    job = make_job(load_model(model), piece, 8 * piece.chips, SEQUENCE, stack, TUNINGS.get(name, Tuning()))
    verdict = judge_one(job, parse_plan(plan))
    ledger = verdict.ledger
    sums = [ledger.by("term", quantity) for quantity in QUANTITIES]
    terms = list(dict.fromkeys(term for quantity in sums for term in quantity))
    return {
        "model FLOPs": job.model_flops,
        "seconds": first_number(verdict.seconds),
        "bytes": first_number(verdict.hbm_bytes),
        "host bytes": first_number(ledger.host_bytes),
        "memory": {part: first_number(size) for part, size in ledger.memory.items()},
        "terms": {term: [first_number(quantity.get(term, 0.0)) for quantity in sums] for term in terms},
    }


@pytest.mark.parametrize("name", CASES)
def test_a_step_adds_up_as_it_did(name: str) -> None:
    assert_equal(account(name), read_account(ACCOUNTS, name), name)


if __name__ == "__main__":
    write_accounts(ACCOUNTS, {name: account(name) for name in CASES})
