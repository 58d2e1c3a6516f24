"""`dscale roofline`, `chips`, `collective` and `shard`: what an answer says at the first command."""

import json

import pytest

from dragonscale.faces.cli import main

MATMUL = "int8[B,D] @ int8[D,F]"


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main([*words]) == code
    out = capsys.readouterr()
    return " ".join((out.out + out.err).split())


def test_open_letters_give_intensity_its_limit_and_the_crossover(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "roofline", MATMUL, "--on", "v5e")
    assert "2*B*D*F/(B*D + B*F + D*F) FLOPs/byte" in text
    assert "large D, F 2*B FLOPs/byte compute binds above B = 240.2" in text
    assert "large D, F 2*B FLOPs/byte" in told(capsys, "roofline", MATMUL)  # without a chip
    only = told(capsys, "roofline", MATMUL, "--on", "v5e", "--weights-only")
    assert "always 2*B FLOPs/byte compute binds above B = 240.2" in only
    batched = told(capsys, "roofline", "int8[B,D] @ int8[B,D,F] -> int8[B,F]", "--on", "v5e")
    assert "large D, F 2 FLOPs/byte HBM binds whatever they are" in batched
    decode = told(capsys, "roofline", "attention(B,T=1,S,N,K,H)", "--on", "v5e")
    assert "N/K FLOPs/byte compute binds above N/K = 240.2" in decode
    explained = told(capsys, "explain", "roofline", MATMUL, "--on", "v5e")
    assert "D, F large: compute = hbm at B = C/(2*W) = 240.2" in explained


def test_sizes_in_lists_go_row_by_row(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["roofline", MATMUL, "--on", "v5e", "--json", "--sizes"]
    rows = json.loads(told(capsys, *asked, "B=[16,512],D=4096,F=[16384,8192]"))["samples"]
    assert [row["sizes"] for row in rows] == [{"B": 16, "F": 16384}, {"B": 512, "F": 8192}]
    assert rows[1]["lower_s"] == pytest.approx(2 * 512 * 4096 * 8192 / 394e12)
    one = json.loads(told(capsys, *asked, "B=16,512,D=4096,F=8192"))["samples"]
    assert one[1]["lower_s"] == rows[1]["lower_s"]
    assert "row by row" in told(capsys, *asked, "B=[1,2],D=[1,2,3],F=4", code=2)
    assert "several values" in told(
        capsys, "shard", "A[I_X,J] -> A[I,J]", "--mesh", "X=2", "--sizes", "I=4,8,J=2", code=2
    )


def test_a_slice_under_switches_says_what_each_tier_carries(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(told(capsys, "chips", "h100:1024", "--json"))
    rows = {row["tier"]: (row["group_bytes_per_s"], row["node_bytes_per_s"]) for row in found["tiers"]}
    assert rows == {"node": (3.6e12, 3.6e12), "leaf": (12.8e12, 400e9), "spine": (51.2e12, 400e9)}
    text = told(capsys, "chips", "h100:1024")
    assert "4 in a node: 64 ports (36 in use) of 25GB/s one way, 1.6TB/s a switch" in text
    assert "64 ports of 50GB/s one way, 3.2TB/s a switch" in text


def test_a_chip_says_its_links_both_ways_its_host_and_what_is_achievable(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "chips", "v5e")
    assert "4 links of 45GB/s one way, 90GB/s both ways; out of a chip 90GB/s an axis, 180GB/s over all 2" in text
    assert "8 chips (4x2); PCIe 16GB/s a chip, DCN 3.125GB/s a chip one way" in text
    assert "88% of the bf16 peak in a matmul of 8,192 a side" in text
    assert "989.5TFLOP/s" in told(capsys, "chips", "h100")
    book = json.loads(told(capsys, "chips", "--source", "book", "--json"))
    assert {row["name"]: row["bf16_flops_per_s"] for row in book}["h100"] == 990e12
    assert "There is no source" in told(capsys, "chips", "--source", "nobody", code=2)


def test_a_collective_takes_a_sharded_array(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["all_gather", "bf16[8192_X,32768_Y]", "--on", "v4:4x4x8"]
    found = json.loads(told(capsys, "collective", *asked, "--axis", "X", "--json"))
    whole = 2 * 8192 * 32768
    assert (found["bytes"], found["chips"]) == (whole / 4, 4)  # Y splits it outside the group
    assert json.loads(told(capsys, "collective", *asked, "--json"))["bytes"] == whole  # over X and Y, which split it
    sums = told(capsys, "collective", "all_reduce", "bf16[8192_X,32768]{U_Y}", "--on", "v4:4x4x8")
    assert "all_reduce of 134MB over Y (4 chips)" in sums
    assert "134MB, the array as one group of 4 chips sees it" in sums
    assert "groups at once: 32" in sums
    assert "bytes each chip sends = 100.7MB" in told(capsys, "explain", "collective", *asked, "--axis", "X")
    assert "mesh axis" in told(capsys, "collective", "all_gather", "bf16[8_Q]", "--on", "v4:4x4x8", code=2)


def test_a_collective_says_what_switches_that_add_gain_and_both_bus_bandwidths(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["collective", "all_reduce", "1GB", "--on", "h100:64", "--in-network"]
    found, text = json.loads(told(capsys, *asked, "--json")), told(capsys, *asked)
    assert found["ring_s"] == pytest.approx(2 * 7 / 8 * 1e9 / 400e9)
    assert "4.38ms without it: 1.75x as fast with it" in text
    rate = found["bus_bandwidth_bytes_per_s"] * found["lower_s"] / found["expected_s"]
    assert found["expected_bus_bandwidth_bytes_per_s"] == pytest.approx(rate)
    assert "Bound by the bandwidth of the leaf tier: 2.5ms at best" in text
    two = told(capsys, "collective", "all_gather", "134MB", "--mesh", "X=2", "--on", "v5p")
    assert "1 hop of 33.5MB each way, each at least 372us" in two


def test_shard_names_what_is_no_matmul_and_sends_sums_to_roofline(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--mesh", "X=2", "--no-backward"]
    assert "elementwise product A[I_X, J]" in told(capsys, "shard", "A[I_X,J] · B[I_X,J] -> C[I_X,J]", *asked)
    assert "outer product A[I_X]" in told(capsys, "shard", "A[I_X] · B[J] -> C[I_X,J]", *asked)
    assert "matmul A[I_X, J]" in told(capsys, "shard", "A[I_X,J] · B[J,K] -> C[I_X,K]", *asked)
    assert "dscale roofline" in told(capsys, "shard", "A[I,J] + B[I,J] -> C[I,J]", *asked, code=2)
    layer = "In[B_X,D] · W1[D,F] · W2[F,D] -> Out[B_X,D]"
    sizes = ["--on", "v5p:8x8x8", "--mesh", "X=512", "--sizes", "B=262144,D=8192,F=28672"]
    assert "Backward needs all_reduce of dW2 over X; all_reduce of dW1 over X; bound by the network, 1.66x" in told(
        capsys, "shard", layer, *sizes
    )


def test_what_is_expected_of_a_collective_names_its_algorithm_and_its_wires(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(*words: str) -> dict:
        return json.loads(told(capsys, "collective", *words, "--json"))

    tree, adding = (answer("all_reduce", "1GB", "--on", "h100:64", *more) for more in ((), ("--in-network",)))
    assert tree["expected_by"].startswith(
        "by a tree without NVLS, at the rates measured on NVLink 4 under NVSwitch and Nodes of H100"
    )
    assert "NVLS" in adding["expected_by"]
    assert adding["expected_s"] < tree["expected_s"]
    assert answer("all_reduce", "1GB", "--on", "h100:8")["expected_by"].endswith("NVLink 4 under NVSwitch")
    assert answer("all_reduce", "1GB", "--on", "l40s:8")["expected_by"].endswith("networks like this one")
    assert "ICI" in answer("all_gather", "1GB", "--on", "v5p:4x4x4")["expected_by"]


def test_shard_says_what_is_needed_before_how(capsys: pytest.CaptureFixture[str]) -> None:
    mlp = ["shard", "In[B, D] · W1[D, F_Y] · W2[F_Y, D] -> Out[B, D]", "--mesh", "Y=8"]
    text = told(capsys, *mlp)
    assert text.index("Forward needs all_reduce of Out over Y") < text.index("array each chip holds")
    assert "2. or:" not in text  # of a chain the cheapest way of each
    assert "2. or:" in told(capsys, *mlp, "--alternatives", "2")
    assert "2. or:" in told(capsys, "shard", "A[I, J_X] @ B[J, K] -> C[I, K]", "--mesh", "X=4")


def test_the_next_command_of_a_model_keeps_length_and_format(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "models", "llama3-70b", "--seq", "32k", "--kv-dtype", "fp8")
    assert "dscale estimate llama3-70b --context 32k --kv-dtype fp8" in text


def test_shard_on_a_chip_leaves_times_out_while_sizes_are_open(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "shard", "A[I_X, J] @ B[J_X, K] -> C[I, K]", "--mesh", "X=4", "--on", "v5e")
    assert "I*J*K/2 FLOPs" in text
    assert "Give sizes (--sizes I=" in text
    assert "at best" not in text
