"""Questions that were once answered wrongly or could not be asked, each with the command that was typed.

Every expected number is worked out by hand in the test.
"""

import json
import re
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from dragonscale.faces.cli import main
from dragonscale.models import count_parameters, load_model
from dragonscale.models.flops import Workload, forward_flops
from dragonscale.models.letters import simple

V5E = {"C": 197e12, "W": 820e9, "link": 45e9}
Capsys = pytest.CaptureFixture[str]


def printed(capsys: Capsys, *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def answered(capsys: Capsys, *arguments: str) -> Any:
    return json.loads(printed(capsys, *arguments, "--json"))


INT8 = ("roofline", "bf16[B,D] @ int8[D,F] -> bf16[B,F]", "--on", "v5e")


def test_1_a_crossover_needs_a_variable_in_one_resource_only(capsys: Capsys) -> None:
    """2·B·D·F / 197e12 = D·F / 820e9 at B = 120.1, whatever D and F are."""
    report = answered(capsys, *INT8, "--sizes", "D=8192,F=28672", "--weights-only")
    [point] = report["crossovers"]
    assert (point["variable"], point["below"], point["above"]) == ("B", "hbm", "compute")
    assert point["value"] == pytest.approx(V5E["C"] / V5E["W"] / 2)
    assert "120.1 is where compute takes over" in report["advice"]
    given = answered(capsys, *INT8, "--sizes", "B=64,D=8192,F=28672", "--weights-only")
    assert given["bound_by"] == "hbm"
    assert given["crossovers"] == [point]


def test_4_a_sharded_einsum_reads_hbm(capsys: Capsys) -> None:
    """Each of 4x8 chips reads 64x2048 + 2048x3584 and writes 64x3584 elements of two bytes at 820 GB/s."""
    text = "In[B, D_X] · W[D_X, F_Y] -> Out[B, F_Y]"
    report = answered(capsys, "shard", text, "--on", "v5e:4x8", "--sizes", "B=64,D=8192,F=28672")
    best = report["forward"][0]["strategies"][0]
    moved = 2 * (64 * 2048 + 2048 * 3584 + 64 * 3584)
    assert best["bound_by"] == "HBM"
    assert best["lower_s"] == best["hbm_s"] == pytest.approx(moved / V5E["W"])
    assert best["math_s"] == pytest.approx(2 * 64 * 8192 * 28672 / 32 / V5E["C"])
    assert max(best["math_s"], best["comms_s"]) < best["hbm_s"]


def test_4_an_unsharded_matmul_takes_what_its_roofline_says(capsys: Capsys) -> None:
    sizes = ("--on", "v5e", "--sizes", "B=64,D=8192,F=28672")
    sharded = answered(capsys, "shard", "In[B, D] · W[D, F] -> Out[B, F]", *sizes)["forward"][0]
    alone = answered(capsys, "roofline", "In[B, D] · W[D, F] -> Out[B, F]", *sizes)
    assert alone["lower_s"] == sharded["strategies"][0]["lower_s"] == pytest.approx(579e-6, rel=2e-3)
    assert sharded["strategies"][0]["bound_by"] == "HBM"


def asked_alone(capsys: Capsys, work: str, chip: str) -> Any:
    return answered(capsys, "roofline", work, "--on", chip)


def test_10_amounts_alone_have_a_roofline(capsys: Capsys) -> None:
    """1e15 FLOPs at 197 TFLOP/s take 5.08 s; 3 GB at 820 GB/s 3.66 ms; int8 runs at twice the rate."""
    flops = asked_alone(capsys, "1e15FLOP", "v5e")
    assert (flops["lower_s"], flops["bound_by"]) == (pytest.approx(1e15 / 197e12), "compute")
    both = asked_alone(capsys, "1e12FLOP int8 3GB", "v5e")
    assert [row["seconds"] for row in both["resources"]] == pytest.approx([1e12 / 394e12, 3e9 / 820e9])


def test_10_attention_by_its_sizes(capsys: Capsys) -> None:
    """Causal: 4·B·N·H FLOPs for each of T(T+1)/2 pairs; Q and the result N heads, keys and values K heads."""
    prompt = asked_alone(capsys, "attention(B=2, T=512, N=16, K=4, H=64, causal)", "h100")
    assert prompt["flops"] == 4 * 2 * 16 * 64 * 512 * 513 / 2
    assert prompt["bytes"] == 2 * 2 * 2 * 512 * 64 * (16 + 4)
    step = asked_alone(capsys, "attention(T=1, S=512, N=16, K=4, H=64)", "h100")
    assert step["flops"] == 4 * 16 * 64 * 512
    assert step["bound_by"] == "hbm"
    last = asked_alone(capsys, "attention(T=2, S=5, N=1, H=64, causal)", "h100")
    assert last["flops"] == 4 * 64 * (4 + 5)


@pytest.mark.parametrize(
    ("work", "flops", "arrays"),
    [("bf16[B,64] + bf16[B,64]", 1, 3), ("softmax(bf16[B,64])", 5, 2), ("swiglu(bf16[B,64], bf16[B,64])", 5, 3)],
)
def test_10_elementwise_functions(capsys: Capsys, work: str, flops: int, arrays: int) -> None:
    report = answered(capsys, "roofline", work, "--on", "v5e", "--sizes", "B=8")
    assert (report["flops"], report["bytes"]) == (flops * 8 * 64, arrays * 2 * 8 * 64)
    assert "fused" in report["advice"]


def test_7_a_collective_has_one_lower_bound(capsys: Capsys) -> None:
    """34 MB over a ring of 4 with links of 45 GB/s: 34e6 · 3/4 / 90e9 = 283 us; to first order 378 us."""
    asked = ("all_gather", "34MB", "--on", "v4:4x4x4", "--axis", "X")
    alone = answered(capsys, "collective", *asked)
    lines = {line["name"]: line for line in answered(capsys, "explain", "collective", *asked)["lines"]}
    assert alone["lower_s"] == pytest.approx(34e6 * 3 / 4 / 90e9)
    assert lines["lower bound (the larger)"]["value_si"] == pytest.approx(alone["lower_s"])
    assert alone["book_s"] == pytest.approx(34e6 / 90e9)
    assert lines["the book's, to first order"]["value_si"] == pytest.approx(alone["book_s"])


def test_7_shard_and_collective_agree(capsys: Capsys) -> None:
    """7.55 MB over two chips: half of it, 3.77 MB, over 90 GB/s is 41.9 us; to first order 83.9 us."""
    on = ("--on", "v5e", "--mesh", "X=2")
    sizes = ("--sizes", "I=1843,J=2048")
    [move] = answered(capsys, "shard", "A[I, J_X] -> B[I, J]", *on, *sizes)["forward_collectives"]
    alone = answered(capsys, "collective", "all_gather", f"{1843 * 2048 * 2}B", *on)
    assert move["seconds"] == alone["lower_s"] == pytest.approx(41.9e-6, rel=2e-3)
    assert move["book_s"] == alone["book_s"] == pytest.approx(83.9e-6, rel=2e-3)


def test_7_switches_that_add_carry_no_more_than_their_links(capsys: Capsys) -> None:
    """450 MB through links of 450 GB/s, each chip sending its array once: 1 ms."""
    report = answered(capsys, "collective", "all_reduce", "450MB", "--on", "h100:8", "--in-network")
    assert report["lower_s"] == pytest.approx(1e-3)
    assert report["wire_bytes_per_chip"] == 450e6
    assert report["algorithm_bandwidth_bytes_per_s"] == pytest.approx(report["link_bytes_per_s"]) == 450e9


def test_8_a_reshard_computes_nothing(capsys: Capsys) -> None:
    shown = printed(capsys, "shard", "A[I_X, J] -> B[I, J_X]", "--on", "v5e:4x4", "--sizes", "I=1024,J=1024")
    assert "inf" not in shown
    assert "A reshard computes nothing" in " ".join(shown.split())
    assert shown.count("all_to_all over X") == 2, "one way forward, one backward"
    assert "Forward needs all_to_all of B over X. Backward needs all_to_all of dA over X." in " ".join(shown.split())


def test_8_a_chain_without_a_chip_does_not_repeat_its_work(capsys: Capsys) -> None:
    """Gathering In is fewest bytes and makes each of four chips do all 275 GFLOP."""
    text = "In[B, D_X] · W_in[D, F] · W_out[F, D] -> Out[B, D]"
    report = answered(capsys, "shard", text, "--mesh", "X=4", "--sizes", "B=1024,D=4096,F=16384")
    flops = [line["strategies"][0]["flops_per_chip"] for line in report["forward"]]
    assert sum(flops) == 2 * 2 * 1024 * 4096 * 16384 / 4


def test_9_explanations_give_bytes_and_exact_values(capsys: Capsys) -> None:
    """All 1,024 chips: 7/8, 31/32 and 3/4 of V at the three tiers; the leaves, at 400 GB/s a node, bind."""
    asked = ("explain", "collective", "all_gather", "450MB", "--on", "h100:1024")
    lines = {line["name"]: line for line in answered(capsys, *asked)["lines"]}
    assert lines["bytes each chip sends"]["value_si"] == 450e6 * 1023 / 1024
    term = lines["bandwidth term"]
    assert term["formula"] == "Max(31*V/(32*W_leaf), 7*V/(8*W_node), 3*V/(4*W_spine))"
    assert (term["value_si"], term["unit"]) == (pytest.approx(450e6 * 31 / 32 / 400e9, rel=1e-12), "s")


def test_9_no_formula_has_long_numbers(capsys: Capsys) -> None:
    for asked in (
        ("collective", "all_to_all", "64MB", "--axis", "XY", "--on", "v5e:16x16"),
        ("collective", "all_reduce", "64MB", "--on", "h100:1024", "--mesh", "X=128,Y=8", "--axis", "X"),
        ("shard", "In[B, D_X] · W[D_X, F] -> Out[B, F]", "--on", "h100:16", "--sizes", "B=64,D=8192,F=28672"),
    ):
        for line in answered(capsys, "explain", *asked)["lines"]:
            assert not re.search(r"\d{6}", line["formula"]), line["formula"]


def test_10_slice_facts(capsys: Capsys) -> None:
    """8x16 v5e chips on hosts of 4x2: X is a line; 16 links of 45 GB/s cross it, 2·8 cross the ring Y."""
    report = answered(capsys, "chips", "v5e:8x16")
    assert (report["chips"], report["hosts"]) == (128, 16)
    assert [(axis["axis"], axis["wraps"], axis["farthest_hops"]) for axis in report["axes"]] == [
        ("X", False, 7),
        ("Y", True, 8),
    ]
    assert [axis["bisection_bytes_per_s"] for axis in report["axes"]] == [16 * 45e9, 2 * 8 * 45e9]
    assert report["bf16_flops_per_s"] == 128 * V5E["C"]
    assert (report["hbm_bytes"], report["hbm_bytes_per_s"]) == (128 * 16e9, 128 * V5E["W"])


def test_10_tiers_of_switches(capsys: Capsys) -> None:
    """The book's SuperPod: 128 nodes of 4 NVSwitches, 4 units of 8 leaves and 32 nodes, 16 spines;
    25.6 TB/s one way."""
    tiers = answered(capsys, "chips", "h100:1024")["tiers"]
    assert [(tier["tier"], tier["groups"], tier["children"], tier["switches"]) for tier in tiers] == [
        ("node", 128, 8, 512),
        ("leaf", 4, 32, 32),
        ("spine", 1, 4, 16),
    ]
    assert [tier["chip_bytes_per_s"] for tier in tiers] == [450e9, 50e9, 50e9]
    assert tiers[-1]["bisection_bytes_per_s"] == 1024 * 50e9 / 2


def test_10_attention_and_elementwise_rooflines(capsys: Capsys) -> None:
    """Attention of 1,024 on 1,024 tokens, 32 heads on 8: 4·t·s·n·h FLOPs over 4·h·(n·t + k·s) bytes."""
    text = "attend(Q[b,t,n,h], K[b,s,k,h], V[b,s,k,h])"
    sizes = "b=1,t=1024,s=1024,n=32,k=8,h=128"
    report = answered(capsys, "roofline", text, "--on", "v5e", "--sizes", sizes)
    assert report["flops"] == 4 * 1024 * 1024 * 32 * 128
    assert report["bytes"] == 2 * 2 * 128 * (32 * 1024 + 8 * 1024)
    assert report["bound_by"] == "compute"
    act = answered(capsys, "roofline", "act(bf16[B,F])", "--on", "v5e", "--sizes", "B=1024,F=8192")
    assert (act["flops"], act["bytes"], act["bound_by"]) == (2**23, 2**25, "hbm")
    assert act["lower_s"] == pytest.approx(2**25 / V5E["W"])


def test_10_flops_without_a_chip(capsys: Capsys) -> None:
    report = answered(capsys, "roofline", "bf16[B,D] @ bf16[D,F]", "--sizes", "B=64,D=8192,F=28672")
    assert report["flops"] == 2 * 64 * 8192 * 28672
    assert report["chip"] is report["lower_s"] is None


def test_10_order_inside_a_tile(capsys: Capsys) -> None:
    """3x5 padded to 4x6 in 2x2 tiles: (0,2) opens the second tile, (2,0) the fourth."""
    report = answered(capsys, "chips", "--layout", "f32[3,5]{1,0:T(2,2)}")
    assert report["places"] == [[0, 1, 4, 5, 8], [2, 3, 6, 7, 10], [12, 13, 16, 17, 20]]
    assert (report["bytes"], report["padded_bytes"]) == (60, 96)


def test_10_bytes_in_all_and_replicas(capsys: Capsys) -> None:
    report = answered(capsys, "shard", "A[I_X, J] -> B[I, J_X]", "--mesh", "X=4,Y=8", "--sizes", "I=1024,J=512")
    array = report["forward"][0]["arrays"][0]
    assert (array["local_bytes"], array["replicas"]) == (2 * 256 * 512, 8)
    assert array["total_bytes"] == 32 * array["local_bytes"]


def test_10_inside_a_ring(capsys: Capsys) -> None:
    """An AllToAll of 16 chips has 256 pieces; each chip sends or passes on 16²/4 of them over two links."""
    report = answered(capsys, "collective", "all_to_all", "64MB", "--axis", "X", "--on", "v5e:16x16")
    ring = report["ring"]
    assert (ring["hop_bytes"], ring["sends"]) == (64e6 / 256, 64)
    assert ring["link_bytes"] == pytest.approx(64 * 64e6 / 256 / 2)
    gather = answered(capsys, "collective", "all_gather", "16MB", "--axis", "X", "--on", "v5e:16x16")["ring"]
    assert (gather["hops"], gather["hop_bytes"]) == (8, 2e6)
    ragged = answered(capsys, "collective", "all_to_all", "64MB", "--axis", "X", "--on", "v5e:16x16", "--picks", "2")
    assert ragged["filled"] == pytest.approx(1 - (15 / 16) ** 2)
    assert ragged["bandwidth_s"] == pytest.approx(report["bandwidth_s"] * ragged["filled"])


def test_10_one_message(capsys: Capsys) -> None:
    """Book, chapter 2: two ways of 45 GB/s out of a corner of a 4x4 line mesh, six hops of a microsecond."""
    report = answered(capsys, "collective", "send", "9MB", "--on", "v5e:4x4", "--from-chip", "0,0", "--to-chip", "3,3")
    assert (report["paths"], report["hops"]) == (2, 6)
    assert report["total_s"] == pytest.approx(9e6 / 90e9 + 6e-6)


def test_12_explain_collective_takes_what_collective_takes(capsys: Capsys) -> None:
    cases = [
        ("all_gather", "34MB", "--on", "v5e:16x16", "--axis", "X", "--one-way"),
        ("all_reduce", "34MB", "--on", "h100:8", "--in-network"),
        ("all_to_all", "34MB", "--on", "v5e:16x16", "--axis", "X", "--filled", "0.25"),
    ]
    for asked in cases:
        alone = answered(capsys, "collective", *asked)
        lines = {line["name"]: line for line in answered(capsys, "explain", "collective", *asked)["lines"]}
        assert lines["lower bound (the larger)"]["value_si"] == pytest.approx(alone["lower_s"])
        assert lines["bytes each chip sends"]["value_si"] == pytest.approx(alone["wire_bytes_per_chip"])


def test_12_slices_by_other_names(capsys: Capsys) -> None:
    assert answered(capsys, "chips", "v2:4x2")["chips"] == 8
    spoken = [answered(capsys, "chips", name)["slice"] for name in ("8xh100", "h100x8", "v6e-256")]
    assert spoken == ["h100:8", "h100:8", "v6e:16x16"]


def test_12_a_program_is_its_sections() -> None:
    program, work = load_model("llama3-8b").program(), Workload(1, 8192, 8192)
    assert forward_flops(program, work) == forward_flops(program.sections, work)


def test_12_six_n_says_what_it_counts(capsys: Capsys) -> None:
    """Llama 3 8B: 8,030,261,248 parameters, 128,256 x 4,096 of them an embedding that is only looked up."""
    report = answered(capsys, "models", "llama3-8b")
    total, embedding = 8_030_261_248, 128_256 * 4096
    assert report["six_n_flops_per_token"] == 6 * (total - embedding)
    assert report["six_n_with_embedding_flops_per_token"] == 6 * total
    assert report["weight_bytes"] == {"bf16": 2 * total, "fp8": total, "int4": total / 2}
    tied = answered(capsys, "models", "llama3.2-1b")
    assert tied["six_n_with_embedding_flops_per_token"] == tied["six_n_flops_per_token"] == 6 * tied["parameters"]


DOCS = Path(__file__).parents[2] / "docs"


def test_11_closed_forms_are_on_a_page() -> None:
    """Every module that the page names exists and holds what is named."""
    table = (DOCS / "units.md").read_text().split("## Closed forms")[1].split("\n## ")[0]
    named = re.findall(r"`(dragonscale\.[\w.]+)`", table)
    assert len(named) >= 6
    for name in named:
        home, _, last = name.rpartition(".")
        assert find_spec(name) if find_spec(home).submodule_search_locations else hasattr(import_module(home), last)


def test_11_the_letters_of_a_model_are_on_a_page(tmp_path: Path) -> None:
    """The page's own example: 40 layers with 64 experts of 4096 x 1536, gated, 32 heads and 4 of keys: 50.9 B."""
    page = (DOCS / "models.md").read_text()
    example = next(block for block in re.findall(r"```toml[^\n]*\n(.*?)```", page, re.DOTALL) if "d_model" in block)
    path = tmp_path / "letters.toml"
    path.write_text(example)
    attention, experts = 4096 * 128 * (2 * 32 + 2 * 4), 64 * 3 * 4096 * 1536
    layer = attention + experts + 64 * 4096 + 2 * 4096
    assert count_parameters(load_model(str(path))).total == 40 * layer + 2 * 128000 * 4096 + 4096
    said = {*re.findall(r"`(\w+)`", page), *re.findall(r"(?m)^(\w+) =", example)}
    assert {*signature(simple).parameters} <= said
