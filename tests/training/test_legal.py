"""What stacks and chips cannot run is refused in a sentence, and never offered."""

import itertools
import re
from dataclasses import fields, replace

import numpy
import pytest

from dragonscale.models import load_model
from dragonscale.physics.hardware import load_chip, parse_slice
from dragonscale.training.cost.evaluation import Job, make_job
from dragonscale.training.plan.legality import FAMILIES, WORDS, family, native, rules
from dragonscale.training.plan.plan import AXES, CONTEXTS, OFFLOADS, OPTIMIZERS, POLICIES, SCHEDULES, Plan
from dragonscale.training.plan.plan_file import given_settings, parse_plan
from dragonscale.training.plan.stack import stacks
from dragonscale.training.search.allowed_space import offered, refusals, ruling_out, settled
from dragonscale.training.search.legal import deals, illegal, unrunnable
from dragonscale.training.search.search import search
from dragonscale.training.search.search_memory import Keeper
from dragonscale.training.search.space import Space, misfits, parse_space

KNOWN = {
    "schedule": SCHEDULES,
    "zero": (0, 1, 2, 3),
    "context_by": CONTEXTS,
    "remat": (*POLICIES, "modules", "block:N"),
    "optimizer": OPTIMIZERS,
    "offload": (*OFFLOADS, "activations:N"),
    "layout": ("even", "ends", "by stage"),
    "sequence": (True, False),
    "etp": (True, False),
    "fold": ("tensor", "context"),
    "axes": AXES,
}


@pytest.mark.parametrize("stack", list(stacks()))
def test_every_stack_has_a_row_of_known_words(stack: str) -> None:
    for chips, piped in itertools.product(FAMILIES, (False, True)):
        row = rules(stack, chips, piped)
        assert any(row.formats.values())
        assert row.why
        for word, known in KNOWN.items():
            has = getattr(row, word)
            assert has
            assert set(has) <= set(known)
            assert len(set(has)) == len(has)
        assert set(row.because) <= {field.name for field in fields(Plan)} | {
            "formats",
            "axes",
            "whole_optimizers",
            "hosted_optimizers",
        }
    assert set(WORDS) <= {field.name for field in fields(Plan)}


def job(model: str = "llama3-8b", on: str = "h100:64", stack: str = "megatron-core", sequence: int = 8192) -> Job:
    return make_job(load_model(model), parse_slice(on), 512, sequence, stack)


REFUSED = [
    ("megatron-core", "h100:64", "tp8 pp8 dualpipe z1", "cannot run schedule=dualpipe, only 1f1b, interleaved"),
    ("megatron-core", "h100:64", "fsdp8 pp8 z3", "cannot run zero=3 with a pipeline"),
    ("megatron-core", "h100:64", "fsdp64 z1 offload", "cannot run remat=offload"),
    ("hf", "h100:8", "fsdp8 offload", "take remat=block"),
    ("megatron-core", "v5p:4x4x4", "fsdp64", "does not run on TPU v5p"),
    ("megatron-core", "h100:64", "fsdp64 z1 dtype=mxfp8", "has no mxfp8 matmul"),
    ("megatron-core", "h100:64", "fsdp64 z1 dtype=nvfp4", "has no nvfp4 matmul"),
    ("megatron-core", "h100:64", "fsdp64 z1 dtype=int8", "does not train in int8"),
    ("megatron-core", "h100:64", "fsdp64 z1 optimizer=adam8", "cannot run optimizer=adam8"),
    ("megatron-2021", "v100:64", "dp8 tp8 z0 sequence=false", "has no bf16 matmul, only fp16"),
    ("megatron-2021", "a100:64", "dp8 tp8 z0", "cannot run sequence=true"),
    ("generic", "a100:64", "fsdp64 dtype=fp8", "has no fp8 matmul"),
    ("generic", "mi300x:64", "fsdp64 dtype=mxfp8", "has no mxfp8 matmul"),
    ("generic", "mi355x:64", "fsdp64 dtype=nvfp4", "has no nvfp4 matmul"),
    ("generic", "h100:64", "dp2 pp32 dualpipe", "cannot run schedule=dualpipe"),
    ("generic", "v5p:4x4x4", "fsdp16 pp4 zbv", "no public trainer has zero-bubble"),
    ("maxtext", "v5p:4x4x4", "fsdp16 pp4 zb-h1", "cannot run schedule=zb-h1"),
    ("maxtext", "v5p:4x4x4", "fsdp16 pp4 1f1b", "cannot run schedule=1f1b"),
    ("maxtext", "v5p:4x4x4", "fsdp64 z2", "cannot run zero=2"),
    ("maxtext", "h100:64", "fsdp8 cp8 ulysses", "Ulysses is for TPUs"),
    ("torch-fsdp", "h100:64", "fsdp2 pp2 cp16 v16 ring interleaved", "has no pipe=2, only data, fsdp"),
    ("llm-foundry", "h100:64", "fsdp8 tp8", "has no tensor=8"),
    ("torchtitan", "h100:64", "fsdp4 tp16", "whole KV heads"),
    ("torchtitan", "h100:64", "fsdp64 z1", "cannot run zero=1"),
    ("torchtitan", "h100:64", "fsdp16 pp4 zbv", "fail with torch.compile"),
    ("nanotron", "h100:64", "fsdp64 z3", "cannot run zero=3"),
    ("megatron-deepspeed", "a100:64", "fsdp16 pp4 z2 sequence=false", "asserts a ZeRO stage below 2"),
    ("hai-llm", "h800:64", "fsdp8 tp8 z1", "trained without tensor parallelism"),
]


@pytest.mark.parametrize(("stack", "on", "plan", "expected"), REFUSED)
def test_what_a_stack_cannot_run_is_refused(stack: str, on: str, plan: str, expected: str) -> None:
    text = illegal(job(stack=stack, on=on), parse_plan(plan))
    assert any(expected in one for one in text), text


@pytest.mark.parametrize(("stack", "on", "plan"), [row[:3] for row in REFUSED if "run on" not in row[3]])
def test_a_refusal_names_a_neighbour_that_runs(stack: str, on: str, plan: str) -> None:
    """Taking what each sentence offers leads to a plan that nothing is said against."""
    here, one = job(stack=stack, on=on), parse_plan(plan)
    for _ in range(4):
        offers = [found for text in illegal(here, one) for found in re.findall(r"take (\w+)=([\w-]+)", text)]
        for name, value in offers:
            one = parse_plan(",".join([f"{k}={v}" for k, v in vars(one).items() if k != name] + [f"{name}={value}"]))
    left = [text for text in illegal(here, one) if "take --stack" not in text and "KV heads" not in text]
    assert left == []


@pytest.mark.parametrize(
    ("model", "on", "batch", "sequence", "stack", "plan"),
    [
        ("llama3-405b", "h100:16384", 2048, 8192, "megatron-core", "fsdp128 tp8 pp16 v8 z1 interleaved layout=ends"),
        ("llama3-405b", "h100:8192", 2048, 8192, "megatron-core", "fsdp64 tp8 pp16 v4 z1 interleaved"),
        ("deepseek-v3", "h800:2048", 15360, 4096, "hai-llm", "fsdp2 ep64 pp16 z1 dualpipe selective dtype=fp8"),
        ("gpt3-175b", "a100:1024", 1536, 2048, "megatron-2021", "dp16 tp8 pp8 z0 sequence=false block"),
        ("llama3-8b", "h100:8", 128, 8192, "torchtitan", "fsdp8"),
        ("llama3-8b", "h100:8", 128, 8192, "torchtitan-eager", "fsdp4 pp2 zbv z2"),
        ("llama3-70b", "v5p:4x4x8", 256, 8192, "maxtext", "fsdp128 block"),
        ("mixtral-8x7b", "h100:64", 256, 4096, "megatron-core", "fsdp4 tp2 ep8 z1"),
    ],
)
def test_published_plans_are_legal(model: str, on: str, batch: int, sequence: int, stack: str, plan: str) -> None:
    here = make_job(load_model(model), parse_slice(on), batch, sequence, stack)
    assert illegal(here, parse_plan(plan)) == []
    assert misfits(here, parse_plan(plan)) == []


def test_palm_on_two_pods_is_accepted() -> None:
    """Sequences of 2048 are no multiple of 12, which matters only where the sequence is split between blocks."""
    from dragonscale.models import simple

    palm = simple("palm", d_model=18432, d_ff=73728, n_layers=118, n_heads=48, n_kv_heads=1, head_dim=256, vocab=256000)
    here = make_job(palm, parse_slice("v4:12x16x16*2"), 2048, 2048, "maxtext")
    plan = parse_plan("dp512 tp12 mb1 sequence=false block z3")
    assert misfits(here, plan) == []
    assert misfits(here, replace(plan, sequence=True))


SEARCHED = [
    ("llama3-8b", "h100:16", 64, 4096, "torchtitan"),
    ("llama3-8b", "h100:16", 64, 4096, "megatron-core"),
    ("llama3-8b", "h100:16", 64, 4096, "dragonscale"),
    ("llama3-8b", "h100:16", 64, 4096, "generic"),
    ("llama3-8b", "a100:16", 64, 4096, "llm-foundry"),
    ("llama3-8b", "a100:16", 64, 4096, "megatron-deepspeed"),
    ("llama3-8b", "a100:16", 64, 4096, "nanotron"),
    ("llama3-8b", "v100:32", 64, 2048, "megatron-2021"),
    ("llama3-8b", "v5p:2x2x4", 64, 4096, "maxtext"),
    ("mixtral-8x7b", "h100:32", 64, 4096, "megatron-bridge"),
    ("mixtral-8x7b", "h100:32", 64, 4096, "hai-llm"),
    ("mixtral-8x7b", "v5p:4x4x4", 64, 4096, "maxtext"),
    ("mixtral-8x7b", "mi300x:16", 64, 4096, "torchtitan"),
]


@pytest.mark.parametrize(("model", "on", "batch", "sequence", "stack"), SEARCHED)
def test_no_plan_is_offered_that_its_stack_cannot_run(
    model: str, on: str, batch: int, sequence: int, stack: str
) -> None:
    here = make_job(load_model(model), parse_slice(on), batch, sequence, stack)
    found = search(here, Space(), 8)
    assert found.best
    for one in (*found.best, *found.front, found.fastest):
        assert one is not None
        assert illegal(here, one.plan) == []
        assert misfits(here, one.plan) == []


@pytest.mark.parametrize(
    ("fix", "stack", "expected"),
    [
        ("schedule=dualpipe", "megatron-core", "cannot run schedule=dualpipe"),
        ("zero=3,pipe=4", "megatron-core", "cannot run zero=3 with a pipeline"),
        ("tensor=8", "llm-foundry", "has no tensor=8"),
        ("optimizer=adafactor", "megatron-core", "cannot run optimizer=adafactor"),
        ("dtype=nvfp4", "megatron-core", "has no nvfp4 matmul"),
    ],
)
def test_what_is_pinned_and_cannot_run_is_refused_unless_forced(fix: str, stack: str, expected: str) -> None:
    here, space = job(stack=stack, on="h100:8"), parse_space(f"{fix},microbatch=1,remat=block")
    assert any(expected in text for text in refusals(here, space))
    assert search(here, space).searched == 0
    assert search(here, replace(space, force=True), 1).searched > 0


@pytest.mark.parametrize("fix", ["zero=3", "zero=3,schedule=1f1b", "zero=2|1,pipe=2", "remat=none|offload", ""])
def test_what_can_run_somewhere_is_not_refused(fix: str) -> None:
    assert refusals(job(), parse_space(fix)) == []


def test_words_that_no_one_named_give_way() -> None:
    volta = offered(job(on="v100:8", stack="megatron-2021"), Space())
    assert (volta.words.dtype, volta.words.sequence) == ("fp16", False)
    plan = parse_plan("fsdp16 pp4")
    assert settled(job(), plan, given_settings("fsdp16 pp4")).zero == 1
    assert settled(job(), plan, frozenset({"zero"})).zero == 3
    assert settled(job(stack="maxtext", on="v5p:4x4x4"), plan, frozenset()).schedule == "gpipe"


def test_formats_are_the_chips_own() -> None:
    h100, b200, a100, v100, v5e = (load_chip(name) for name in ("h100", "b200", "a100", "v100", "v5e"))
    assert native(h100, "fp8")
    assert native(b200, "nvfp4")
    assert native(v5e, "int8")
    assert not any(native(chip, "nvfp4") for chip in (h100, a100, v100, v5e))
    assert not native(a100, "fp8")
    assert not native(v100, "bf16")
    assert family(load_chip("mi355x")) == "amd"


@pytest.mark.parametrize(
    ("plan", "runs"),
    [
        ("fsdp8 tp8 block", True),
        ("cp8 ring", True),
        ("pp4 cp2 ring", False),
        ("pp4 1f1b", True),
        ("pp4 dualpipe", False),
        ("pp4 layout=ends", True),
        ("pp4 layout=7-8-8-9", True),
        ("fsdp8 block:5", True),
        ("pp4 block:5", False),
        ("fsdp8 offload", True),
        ("pp4 offload", False),
        ("pp4 zb-h1", True),
        ("fsdp8 offload=optimizer", True),
        ("pp4 offload=optimizer", False),
        ("cp8 ulysses", False),
        ("fsdp8 dtype=fp8", True),
        ("fsdp8 dtype=mxfp8", False),
        ("fsdp8 optimizer=adam8", True),
    ],
)
def test_what_our_own_program_runs(plan: str, runs: bool) -> None:
    assert (unrunnable(parse_plan(plan), load_model("llama3-8b")) == "") == runs


@pytest.mark.parametrize(
    ("model", "plan", "clause"),
    [
        ("gpt-oss-120b", "pp4 v9", "longest run of equal ones has 18, fewer than 36 chunks"),
        ("deepseek-v3", "pp4 layout=ends", "where all layers are alike; take layout=even"),
        ("mixtral-8x7b", "fsdp8 dtype=fp8", "does not multiply experts in fp8 yet; take dtype=bf16"),
        ("jamba-52b", "fsdp8", "does not compute conv and scan"),
    ],
)
def test_what_our_own_program_does_not_run_of_a_model(model: str, plan: str, clause: str) -> None:
    assert clause in unrunnable(parse_plan(plan), load_model(model))
    assert clause in " ".join(illegal(job(model, "h100:64", stack="dragonscale"), parse_plan(plan)))


def test_stages_of_our_own_program_are_of_one_kind() -> None:
    """Of 61 layers three are dense and would run on every rank; 18 pairs of layers are dealt in pairs; shorter stages
    are filled up, which is what is planned where each rank has one."""
    row = rules("dragonscale", "nvidia", piped=True)
    orders = {name: load_model(name).program().order for name in ("deepseek-v3", "gpt-oss-120b", "llama3-8b")}
    offers = [
        ("deepseek-v3", 4, 1),
        ("gpt-oss-120b", 4, 1),
        ("gpt-oss-120b", 2, 9),
        ("llama3-8b", 3, 1),
        ("llama3-8b", 3, 2),
    ]
    assert [deals(row, orders[name], pipe, virtual) for name, pipe, virtual in offers] == [
        False,
        False,
        True,
        True,
        False,
    ]
    for name in orders:
        assert not illegal(job(name, "h100:64", stack="dragonscale"), parse_plan("pp4 fsdp16"))


def test_the_plan_that_our_own_program_takes_has_its_stages() -> None:
    """The recommended plan deals single layers, and 36 of two kinds in turn are 18 pairs."""
    here = replace(job("gpt-oss-120b", "h100:64", sequence=4096), batch=64)  # a few microbatches: bubbles count
    found = search(here, parse_space("pipe=4,expert=16,microbatch=1,zero=1,remat=none"), 1)
    assert found.best
    assert unrunnable(found.best[0].plan, here.model)
    assert found.runs is not None
    assert not unrunnable(found.runs.plan, here.model)
    assert found.runs.plan.pipe == 4
    pairs = {"pipe": numpy.array([1, 4, 4, 2]), "virtual": numpy.array([1, 9, 3, 19])}
    assert Keeper(here, 1, 0.01).staged(pairs).tolist() == [True, False, True, False]
    alike = job("llama3.1-405b", "h100:64")  # 126 layers, and 128 with both ends
    pairs = {"pipe": numpy.array([16, 16, 18]), "virtual": numpy.array([8, 16, 7])}
    assert Keeper(alike, 1, 0.01).staged(pairs).tolist() == [True, False, True]


def test_megatron_does_not_run_muon_with_fsdp() -> None:
    here = job(model="llama3-8b", on="h100:64", stack="megatron-core")
    plan = parse_plan("fsdp64 z3 optimizer=muon")
    assert any(
        "cannot run zero=3 with optimizer=muon, only 1, 0 (its arguments.py asserts" in text
        for text in illegal(here, plan)
    )
    assert not illegal(here, replace(plan, zero=1))
    assert not illegal(here, replace(plan, optimizer="adam"))
    assert settled(here, plan, frozenset({"fsdp", "optimizer"})).zero == 1  # nobody asked for a stage
    for named in (frozenset(), frozenset({"zero"})):  # asked for or not
        found = search(here, Space(words=Plan(optimizer="muon"), remat=("none",), named=named), 3).best
        assert found
        assert all(one.plan.zero < 2 for one in found)


def test_where_nothing_else_divides_a_search_does_without_sequence_parallelism() -> None:
    palm = make_job(load_model("palm-540b"), parse_slice("v4:16x16x12*2"), 2048, 2048, "maxtext")
    assert not offered(palm, Space()).words.sequence
    assert offered(palm, parse_space("sequence=true")).words.sequence  # what was asked for stays
    found = search(palm, Space(remat=("selective",), schedule=("gpipe",)), 5).best
    assert "data=2,fsdp=256,tensor=12,remat=selective,sequence=false" in [str(one.plan) for one in found]
    assert offered(job(), Space()).words.sequence


def test_the_rule_that_leaves_nothing_is_named() -> None:
    palm = make_job(load_model("palm-540b"), parse_slice("v4:16x16x12*2"), 2048, 2048, "maxtext")
    (told,) = ruling_out(palm, parse_space("sequence=true"))
    assert "stack maxtext has equal stages, and 118 layers do not divide over pipe=" in told


def test_a_space_in_python_pins_what_a_fixed_setting_does() -> None:
    here = make_job(load_model("llama3-8b"), parse_slice("h100:16"), 64, 8192, "megatron-core")
    mesh = {"fsdp": 8, "tensor": 2, "microbatch": 1}
    typed = search(here, parse_space("zero=3,fsdp=8,tensor=2,microbatch=1,remat=none"), 1).best
    written = search(here, Space(zero=(3,), fixed=mesh, remat=("none",)), 1).best
    assert [one.plan for one in written] == [one.plan for one in typed]
    assert written[0].plan.zero == 3
    assert not search(here, replace(Space(fixed=mesh, remat=("none",)), zero=(3,)), 1).best  # narrowed, not asked for


@pytest.mark.parametrize(("sequence", "refused"), [(8192, False), (8192 + 8, True), (8192 + 64, False)])
def test_a_ring_on_tpus_needs_sequences_that_its_square_divides(sequence: int, refused: bool) -> None:
    """MaxText's ring over 8 chips: 8,200 tokens divide by 8 and not by 64."""
    here = job(stack="maxtext", on="v5p:4x4x4", sequence=sequence)
    found = illegal(here, parse_plan("fsdp8 cp8 ring"))
    assert any("context squared divides" in text for text in found) == refused
    gathered = illegal(here, parse_plan("fsdp8 cp8 gather"))
    assert not any("context squared" in text for text in gathered)
