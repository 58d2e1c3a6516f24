"""Deployments of Dynamo and llm-d: pools with the engine's own options, valid manifests, and read back
as they stand."""

from pathlib import Path
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.errors import Infeasible, InputError
from dragonscale.exports.engines.dynamo import worker_words
from tests.exports.manifests import manifests

POOLS = """
model = "llama3-70b"
slice = "h100:8"
batch = 64
replicas = 3
[plan]
tensor = 8
[prefill]
slice = "h100:4"
plan = "tensor=4"
replicas = 2
"""
WIDE = 'model = "llama3-70b"\nslice = "h100:16"\nbatch = 64\nreplicas = 2\n[plan]\ntensor = 8\npipe = 2\n'


def exported(text: str, folder: Path, to: str, **more: Any) -> Any:
    path = folder / "plan.toml"
    path.write_text(text)
    return ds.export(str(path), to=to, **more)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_dynamo_starts_both_pools_of_an_engine(engine: str, tmp_path: Path) -> None:
    made = exported(POOLS, tmp_path, "dynamo", engine=engine)
    assert list(made.files) == ["dynamo.k8s.yaml"]
    graph = manifests(made.text())[-1]
    front, decode, prefill = graph["spec"]["components"]
    assert front["podTemplate"]["spec"]["containers"][0]["command"] == ["python3", "-m", "dynamo.frontend"]
    for pool, role, replicas, chips in ((decode, "decode", 3, 8), (prefill, "prefill", 2, 4)):
        container = pool["podTemplate"]["spec"]["containers"][0]
        assert (pool["type"], pool["replicas"], container["resources"]["limits"]) == (
            role,
            replicas,
            {"nvidia.com/gpu": chips},
        )
        assert container["command"] == ["python3", "-m", f"dynamo.{engine}"]
        words = container["args"]
        assert words[words.index("--disaggregation-mode") + 1] == role
        assert not {"--port", "--host", "--node-rank"} & set(words)
    bare = ds.import_plan("".join(line for line in made.text().splitlines(keepends=True) if "dscale: {" not in line))
    assert (bare.software, bare.engine, bare.slice, bare.plan["tensor"]) == ("NVIDIA Dynamo", engine, "h100:8", 8)
    assert bare.workload["replicas"] == 3
    assert bare.workload["prefill"] == {"slice": "h100:4", "plan": "tensor=4", "replicas": 2}
    edited = ds.import_plan(made.text().replace("replicas: 2", "replicas: 5"))
    assert edited.workload["prefill"]["replicas"] == 5


def test_dynamo_leaves_the_ranks_of_hosts_to_its_operator(tmp_path: Path) -> None:
    (graph,) = manifests(exported(WIDE, tmp_path, "dynamo", engine="vllm").text())
    worker = graph["spec"]["components"][1]
    assert (worker["type"], worker["multinode"], worker["replicas"]) == ("worker", {"nodeCount": 2}, 2)
    assert not {"--nnodes", "--node-rank", "--master-addr"} & set(
        worker["podTemplate"]["spec"]["containers"][0]["args"]
    )


def test_words_of_engines_become_those_of_workers() -> None:
    words = [
        "python",
        "-m",
        "sglang.launch_server",
        "--model-path",
        "m",
        "--attn-dp-size",
        "8",
        "--host",
        "0.0.0.0",
        "--disaggregation-transfer-backend",
        "mooncake",
    ]
    assert worker_words("sglang", words, "decode") == [
        "--model-path",
        "m",
        "--enable-dp-attention",
        "--dp-size",
        "8",
        "--disaggregation-transfer-backend",
        "nixl",
    ]
    assert worker_words(
        "trtllm", ["trtllm-llmapi-launch", "trtllm-serve", "m", "--host", "h", "--config", "/config/a.yaml"], ""
    ) == [
        "--model",
        "m",
        "--extra-engine-args",
        "/config/a.yaml",
    ]


def test_what_dynamo_cannot_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leave slurm out"):
        exported(WIDE, tmp_path, "dynamo,slurm")
    amd = 'model = "llama3-8b"\nengine = "vllm"\nslice = "mi300x:1"\nbatch = 8\n[plan]\ntensor = 1\n'
    with pytest.raises(Infeasible, match="NVIDIA"):
        exported(amd, tmp_path, "dynamo")
    with pytest.raises(InputError, match="without a worker"):
        ds.import_plan(
            "apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\nspec: {components: [{name: a}, 3]}\n"
        )


def test_llm_d_puts_a_sidecar_before_pods_that_decode(tmp_path: Path) -> None:
    made = exported(POOLS, tmp_path, "llm-d")
    decode, prefill = manifests(made.text())
    labels = {
        one["spec"]["template"]["metadata"]["labels"]["llm-d.ai/role"]: one["spec"]["replicas"]
        for one in (decode, prefill)
    }
    assert labels == {"decode": 3, "prefill": 2}
    pods = decode["spec"]["template"]["spec"]
    assert pods["initContainers"][0]["restartPolicy"] == "Always"
    assert "--port 8200" in pods["containers"][0]["command"][2]
    assert "initContainers" not in prefill["spec"]["template"]["spec"]
    assert all(
        '"kv_role": "kv_both"' in one["spec"]["template"]["spec"]["containers"][0]["command"][2]
        for one in (decode, prefill)
    )
    bare = ds.import_plan("".join(line for line in made.text().splitlines(keepends=True) if "dscale: {" not in line))
    assert (bare.software, bare.slice, bare.workload["replicas"]) == ("llm-d", "h100:8", 3)
    assert bare.workload["prefill"] == {"slice": "h100:4", "plan": "tensor=4", "replicas": 2}
    (group,) = manifests(exported(WIDE, tmp_path, "llm-d").text())
    assert (group["kind"], group["spec"]["leaderWorkerTemplate"]["size"]) == ("LeaderWorkerSet", 2)


def test_pods_that_start_no_engine_are_refused_in_a_sentence() -> None:
    pods = "{containers: [{name: a, command: [bash, -c, 'echo vllm']}]}"
    template = f"{{metadata: {{labels: {{llm-d.ai/role: decode}}}}, spec: {pods}}}"
    text = f"apiVersion: apps/v1\nkind: Deployment\nspec:\n  template: {template}\n"
    with pytest.raises(InputError, match="does not say what vLLM is started with"):
        ds.import_plan(text)
