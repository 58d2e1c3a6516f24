"""`dscale validate kernels`: kinds told by columns, rows left out with a reason, bad files refused in a sentence."""

import pytest

from dragonscale.errors import InputError
from dragonscale.evidence.kernels import validate

GEMM = "system,gemm_dtype,m,n,k,latency_us\n"
PREFILL = "system,kernel,kv_dtype,q_heads,kv_heads,head_dim,batch_size,isl,latency_us\n"
DECODE = "system,kernel,kv_dtype,q_heads,kv_heads,head_dim,batch_size,kv_len,latency_us\n"
MOE = (
    "system,kernel_source,moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,"
    "distribution,latency_us\n"
)


@pytest.fixture
def score(tmp_path):
    def run(text: str):
        path = tmp_path / "rows.csv"
        path.write_text(text, encoding="utf-8")
        return validate(path)

    return run


@pytest.mark.parametrize(
    ("text", "group"),
    [
        (GEMM + "h100_sxm,bfloat16,8192,8192,8192,1439\n", "gemm bf16 h100"),
        (PREFILL + "h200_sxm,flash_attn_fa3,bfloat16,32,8,128,1,8192,938.3\n", "prefill bf16 h200"),
        (PREFILL + "b200_sxm,flashinfer_trtllmdecode,fp8,32,8,128,64,1,13.1\n", "decode fp8 b200"),
        (DECODE + "b200_sxm,flashinfer_trtllmdecode,fp8,32,8,128,64,4096,86.8\n", "decode fp8 b200"),
        (
            MOE
            + "h200_sxm,vllm_unquantizedfusedmoe_triton_tritonexperts,bfloat16,16,4096,1536,8,128,1,1,balanced,1097\n",
            "moe bf16 h200",
        ),
    ],
)
def test_every_kind_is_scored(score, text: str, group: str) -> None:
    report = score(text)
    (row,) = report.scored
    assert row.group == group
    assert row.ape < 0.2
    record = report.as_json()
    assert record["by_kernel"][group]["rows"] == 1
    assert record["scored"] == record["rows"] == 1


def test_collectives_of_one_node_go_to_their_own_model(score) -> None:
    report = score(
        "system,impl,op_name,dtype,num_gpus,bytes,latency_us\nh100_sxm,nccl_2.29.2,all_gather,half,8,33554432,120\n"
    )
    assert len(report.scored) == 1


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("h100_sxm,fp9,8,8,8,1", "unknown number format 'fp9'"),
        ("h100_sxm,,8,8,8,1", "number format not stated"),
        ("abacus,bfloat16,8,8,8,1", "unknown system 'abacus'"),
        (",bfloat16,8,8,8,1", "system not stated"),
        ("mine.toml,bfloat16,8,8,8,1", "unknown system 'mine.toml'"),
        ("h100_sxm,bfloat16,,8,8,1", "m not a positive whole number"),
        ("h100_sxm,bfloat16,8,-8,8,1", "n not a positive whole number"),
        ("h100_sxm,bfloat16,8,8,1e300,1", "k not a positive whole number"),
        ("h100_sxm,bfloat16,8,8,8.5,1", "k not a positive whole number"),
        ("h100_sxm,bfloat16,8,8,8,nan", "latency not a positive number"),
        ("h100_sxm,bfloat16,8,8,8", "latency not a positive number"),
    ],
)
def test_rows_that_lack_something_are_counted(score, row: str, reason: str) -> None:
    report = score(GEMM + row + "\n")
    assert report.skipped == {reason: 1}
    assert report.as_json()["scored"] == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"distribution": "zipf"}, "unknown distribution 'zipf'"),
        ({"distribution": "power_law_9"}, "unknown distribution 'power_law_9'"),
        ({"distribution": ""}, "distribution not stated"),
        ({"topk": "200"}, "more experts per token, or chips, than experts"),
        ({"kernel_source": "hand_written"}, "no model of unnamed experts in bf16 on h200"),
        ({"kernel_source": "marlin"}, "no model of marlin experts in bf16 on h200"),
    ],
)
def test_experts_that_cannot_be_scored_are_counted(score, changes: dict, reason: str) -> None:
    row = {
        "system": "h200_sxm",
        "kernel_source": "tritonexperts",
        "moe_dtype": "bfloat16",
        "num_tokens": "16",
        "hidden_size": "4096",
        "inter_size": "1536",
        "topk": "8",
        "num_experts": "128",
        "moe_tp_size": "1",
        "moe_ep_size": "1",
        "distribution": "balanced",
        "latency_us": "1097",
    }
    assert score(MOE + ",".join((row | changes).values()) + "\n").skipped == {reason: 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n", "has no column system, gemm_dtype, m, n …; measured kernels need"),
        (
            "system,gemm_dtype,m,n,latency_us\n",
            "has no column k; measured kernels need system, gemm_dtype, m, n, k, latency_us",
        ),
        (GEMM, "has column names but no rows"),
        ("system,comm_backend,phase\nh100,deepep,dispatch\n", "has no column"),
    ],
)
def test_bad_files_are_refused_in_a_sentence(score, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        score(text)
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        validate(tmp_path / "nothing.csv")
