"""Launchers start the right commands on the right hosts: batch scripts are run with stand-ins for Slurm, manifests are
held against schemas, and what was launched is read back."""

import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import dragonscale as ds
from dragonscale.commands.export.ask_export import _written  # pyright: ignore[reportPrivateUsage]
from dragonscale.errors import Infeasible
from dragonscale.exports.imported import Source
from dragonscale.exports.launchers import kubernetes, shell, skypilot, slurm
from dragonscale.exports.launchers.unwrap import unwrapped
from dragonscale.exports.runs import Run, ServingRun, TrainingRun
from dragonscale.exports.target import target_named
from dragonscale.exports.written import HOSTS, LEADER, RANK, LaunchProgram, WrittenFiles, address, config_file
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice
from dragonscale.serving.engine.launch import engine_on
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.engine.plan_file import SavedPlan
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.plan_file import TrainingFile
from tests.exports.manifests import manifests, sky_task
from tests.exports.stand_ins import kubernetes_text, run_script
from tests.exports.written_runs import serving_run

VLLM = target_named("vllm")


def training(on: str, **more: Any) -> TrainingRun:
    file = TrainingFile(Plan(), model="llama3-8b", slice=on, batch=64, seq=8192, **more)
    return TrainingRun(file, load_model("llama3-8b"), {}, parse_slice(on), step_s=2.0)


def serving(on: str, replicas: int = 1, prefill: str = "") -> ServingRun:
    piece = parse_slice(on)
    file = SavedPlan(ServingPlan(), model="llama3-8b", slice=on, engine="vllm", replicas=replicas)
    own = serving(prefill) if prefill else None
    return ServingRun(
        file,
        load_model("llama3-8b"),
        {},
        piece,
        engine_on("vllm", piece.chip, load_model("llama3-8b"), None, piece.chips, ServingPlan()),
        prefill=own,
    )


def script_of(module: Any, run: Run, *programs: LaunchProgram, files: dict[str, str] | None = None) -> str:
    return next(
        iter(module.launch(run, VLLM, WrittenFiles(files or {}, programs, addressed=tuple(files or {}))).values())
    )


TRAIN = LaunchProgram(
    "train", ("train.py", "--config", config_file("run.toml")), hosts=2, chips=8, per="chip", env={"NCCL_X": "a b"}
)


def test_slurm_starts_torchrun_on_each_host(tmp_path: Path) -> None:
    text = script_of(slurm, training("h100:16", tokens="1B"), TRAIN)
    for line in ("--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=8", "--exclusive", "--time=0-02:00:00"):
        assert f"#SBATCH {line}\n" in text  # 1,907 steps of 2 s and a fifth more
    calls = run_script(text, tmp_path, 2)
    assert [one.env["HOST"] for one in calls] == ["node0", "node1"]
    meet = ["--rdzv-id", "7", "--rdzv-backend", "c10d", "--rdzv-endpoint", "node0:29500"]
    assert (
        calls[0].words
        == calls[1].words
        == ["torchrun", "--nproc-per-node", "8", "--nnodes", "2", *meet, "train.py", "--config", "run.toml"]
    )
    assert calls[0].env["NCCL_X"] == "a b"


def test_slurm_keeps_the_trays_of_an_nvlink_domain_together() -> None:
    text = script_of(slurm, training("gb200:128"), LaunchProgram("train", ("train.py",), 32, 4, per="chip"))
    assert "#SBATCH --nodes=32\n" in text
    assert "#SBATCH --gpus-per-node=4\n" in text
    assert "#SBATCH --segment=16\n" in text  # 64 GPUs of each rack
    assert "--segment" not in script_of(slurm, training("h100:16"), TRAIN)


RANKED = ("vllm", "serve", "m", "--nnodes", HOSTS, "--node-rank", RANK, "--master-addr", LEADER, "--say", "it's")


def test_slurm_gives_each_replica_its_hosts_ranks_and_leader(tmp_path: Path) -> None:
    program = LaunchProgram("serve", RANKED, hosts=2, chips=8, copies=2, others=("--headless",))
    calls = run_script(script_of(slurm, serving("h100:16", 2), program), tmp_path, 4)
    found = sorted((one.env["HOST"], one.words[6], one.words[8], "--headless" in one.words) for one in calls)
    assert found == [
        ("node0", "0", "node0", False),
        ("node1", "1", "node0", True),
        ("node2", "0", "node2", False),
        ("node3", "1", "node2", True),
    ]


def test_slurm_lays_pools_on_their_own_hosts_and_small_replicas_on_shared_ones(tmp_path: Path) -> None:
    env = {"VLLM_NIXL_SIDE_CHANNEL_PORT": "5600"}
    prefill = LaunchProgram("prefill", ("vllm", "prefill"), hosts=1, chips=8, copies=2, env=env)
    decode = LaunchProgram("decode", ("vllm", "decode", "--port", "8000"), hosts=1, chips=4, copies=3, port=8000)
    text = script_of(slurm, serving("h100:4", 3), prefill, decode)
    assert "#SBATCH --nodes=5\n" in text
    calls = run_script(text, tmp_path, 5)
    found = sorted((one.env["HOST"], one.words[1], one.env.get("VLLM_NIXL_SIDE_CHANNEL_HOST", "")) for one in calls)
    pools = [("node0", "prefill", "node0"), ("node1", "prefill", "node1")]
    assert found == [*pools, *((f"node{place}", "decode", "") for place in (2, 3, 4))]
    calls = run_script(script_of(slurm, serving("h100:4", 3), decode), tmp_path, 2)
    found = sorted((one.env["HOST"], *one.words[1:], one.env["CUDA_VISIBLE_DEVICES"]) for one in calls)
    assert found == [
        ("node0", "decode", "--port", "8000", "0,1,2,3"),
        ("node0", "decode", "--port", "8001", "4,5,6,7"),
        ("node1", "decode", "--port", "8000", "0,1,2,3"),
    ]
    with pytest.raises(Infeasible, match="one kind"):
        script_of(slurm, serving("h100:4", prefill="h200:8"), prefill, decode)


@pytest.mark.slow
def test_programs_that_name_others_are_given_their_hosts(tmp_path: Path) -> None:
    """TensorRT-LLM's ranks are MPI's, and what stands before its pools has a file with their addresses."""
    decode = LaunchProgram("decode", ("vllm", "decode"), hosts=2, chips=8, per="rank", copies=2, port=8002)
    prefill = LaunchProgram("prefill", ("vllm", "prefill"), hosts=1, chips=4, copies=2, env={"NCCL_X": "1"})
    front = LaunchProgram(
        "front",
        ("vllm", "front", "--file", config_file("pools.yaml"), "--first", "http://" + address("decode", 1, 8002)),
        hosts=1,
        chips=0,
    )
    pools = "urls: [prefill-1:8001, decode-1:8002, gpt-2:3]\n"
    text = script_of(slurm, serving("h100:16"), decode, prefill, front, files={"pools.yaml": pools})
    assert "#SBATCH --nodes=6\n" in text
    assert "--ntasks=16 --ntasks-per-node=8 --cpu-bind=none --mpi=pmix" in text
    (tmp_path / "pools.yaml").write_text(pools)
    calls = run_script(f"cd {tmp_path}\n{text}", tmp_path, 6)
    assert (tmp_path / "7-pools.yaml").read_text() == "urls: [node5:8001, node2:8002, gpt-2:3]\n"
    (started,) = [one for one in calls if one.words[1] == "front"]
    assert started.words == ["vllm", "front", "--file", "7-pools.yaml", "--first", "http://node2:8002"]
    assert (started.env["HOST"], started.env["MASTER_ADDR"], "NCCL_X" in started.env) == ("node0", "node0", False)
    with pytest.raises(Infeasible, match="MPI"):
        script_of(kubernetes, serving("h100:16"), decode)
    one = LaunchProgram("decode", ("vllm", "decode"), hosts=1, chips=8, copies=2)
    documents = manifests(script_of(kubernetes, serving("h100:8"), one, front, files={"pools.yaml": pools}))
    assert documents[0]["data"]["pools.yaml"] == "urls: [prefill-1:8001, llama3-8b-vllm-decode:8002, gpt-2:3]\n"
    assert "llama3-8b-vllm-decode" in [one["metadata"]["name"] for one in documents if one["kind"] == "Service"]


def test_a_shell_script_starts_one_host_or_its_replicas(tmp_path: Path) -> None:
    calls = run_script(script_of(shell, training("h100:16"), TRAIN), tmp_path, 1, NODE_RANK="1", MASTER_ADDR="first")
    assert calls[0].words[3:11] == [
        "--nnodes",
        "2",
        "--node-rank",
        "1",
        "--master-addr",
        "first",
        "--master-port",
        "29500",
    ]
    small = LaunchProgram("serve", ("vllm", "serve", "m"), hosts=1, chips=2, copies=6, port=9000)
    text = script_of(shell, serving("h100:2", 6), small)
    assert "on each of 2 hosts, on the last with COPIES=2" in text
    calls = run_script(text, tmp_path, 1, COPIES="2")
    found = sorted((one.words[-1], one.env["CUDA_VISIBLE_DEVICES"]) for one in calls)
    assert found == [("9000", "0,1"), ("9001", "2,3")]


def test_training_on_gpus_is_a_jobset_whose_pods_find_the_first(tmp_path: Path) -> None:
    text = script_of(kubernetes, training("h100:16"), TRAIN, files={"run.toml": "a = 1\n"})
    config, job = manifests(text)
    assert config["data"] == {"run.toml": "a = 1\n"}
    replicated = job["spec"]["replicatedJobs"][0]
    assert (replicated["replicas"], replicated["template"]["spec"]["parallelism"]) == (1, 2)
    spec = replicated["template"]["spec"]["template"]["spec"]
    container = spec["containers"][0]
    assert spec["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert {one["mountPath"] for one in container["volumeMounts"]} == {"/dev/shm", "/config"}
    calls = run_script(container["command"][2], tmp_path, 1, JOB_COMPLETION_INDEX="1")
    place = ["--node-rank", "1", "--master-addr", "llama3-8b-vllm-worker-0-0.llama3-8b-vllm", "--master-port", "29500"]
    assert calls[0].words == [
        "torchrun",
        "--nproc-per-node",
        "8",
        "--nnodes",
        "2",
        *place,
        "train.py",
        "--config",
        "/config/run.toml",
    ]


def test_training_on_tpu_slices_is_a_job_for_each(tmp_path: Path) -> None:
    program = LaunchProgram("train", ("vllm", "train", "--process", RANK, "--of", HOSTS), hosts=32, chips=4)
    (job,) = manifests(script_of(kubernetes, training("v5p:4x4x4*2"), program))
    assert job["metadata"]["annotations"] == {
        "alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"
    }
    replicated = job["spec"]["replicatedJobs"][0]
    inner = replicated["template"]["spec"]
    assert (replicated["replicas"], inner["parallelism"], inner["completions"]) == (2, 16, 16)
    spec = inner["template"]["spec"]
    assert list(spec["nodeSelector"].values()) == ["tpu-v5p-slice", "4x4x4"]
    assert spec["containers"][0]["resources"]["limits"] == {"google.com/tpu": 4}
    script = kubernetes_text(spec["containers"][0]["command"][2], {})
    calls = run_script(script, tmp_path, 1, JOB_COMPLETION_INDEX="3", JOB_INDEX="1")
    assert calls[0].words[-3:] == ["19", "--of", "32"]


def test_serving_is_a_deployment_or_groups_of_pods(tmp_path: Path) -> None:
    one = LaunchProgram("serve", ("vllm", "serve", "m"), hosts=1, chips=4, copies=3)
    deployment, service = manifests(script_of(kubernetes, serving("mi300x:4", 3), one))
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert (deployment["kind"], deployment["spec"]["replicas"]) == ("Deployment", 3)
    assert container["resources"]["limits"] == {"amd.com/gpu": 4}
    assert container["readinessProbe"]["httpGet"] == {"path": "/health", "port": 8000}
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    many = LaunchProgram("serve", RANKED, hosts=2, chips=8, copies=2, others=("--headless",))
    groups, _ = manifests(script_of(kubernetes, serving("h100:16", 2), many))
    template = groups["spec"]["leaderWorkerTemplate"]
    assert (groups["spec"]["replicas"], template["size"]) == (2, 2)
    assert "readinessProbe" not in template["workerTemplate"]["spec"]["containers"][0]
    script = template["workerTemplate"]["spec"]["containers"][0]["command"][2]
    calls = run_script(script, tmp_path, 1, LWS_WORKER_INDEX="1", LWS_LEADER_ADDRESS="lead")
    place = ["--nnodes", "2", "--node-rank", "1", "--master-addr", "lead"]
    assert calls[0].words == ["vllm", "serve", "m", *place, "--say", "it's", "--port", "8000", "--headless"]


def test_what_a_schema_does_not_name_is_refused() -> None:
    text = script_of(kubernetes, training("h100:16"), TRAIN)
    with pytest.raises(jsonschema.ValidationError):
        manifests(text.replace("backoffLimit", "backofLimit"))
    with pytest.raises(jsonschema.ValidationError):
        manifests(text.replace("emptyDir", "emtyDir"))
    with pytest.raises(jsonschema.ValidationError):
        sky_task(script_of(skypilot, training("h100:16"), TRAIN).replace("num_nodes", "nodes"))


def test_a_sky_task_says_its_nodes_and_replicas(tmp_path: Path) -> None:
    task = sky_task(script_of(skypilot, training("h100:16"), TRAIN))
    assert (task["resources"]["accelerators"], task["num_nodes"]) == ("H100:8", 2)
    calls = run_script(task["run"], tmp_path, 1, SKYPILOT_NODE_RANK="1", SKYPILOT_NODE_IPS="10.0.0.1\n10.0.0.2")
    assert calls[0].words[5:9] == ["--node-rank", "1", "--master-addr", "10.0.0.1"]
    served = sky_task(
        script_of(skypilot, serving("h100:4", 2), LaunchProgram("serve", ("vllm", "serve", "m"), 1, 4, copies=2))
    )
    assert served["service"]["replicas"] == 2
    tpus = sky_task(script_of(skypilot, training("v5p:4x4x4*2"), LaunchProgram("train", ("python3", "t.py"), 32, 4)))
    assert (tpus["resources"]["accelerators"], tpus["num_nodes"]) == ("tpu-v5p-128", 2)
    with pytest.raises(Infeasible, match="SkyPilot has no"):
        script_of(skypilot, training("tpu7x:4x4x4"), LaunchProgram("train", ("python3", "t.py"), 16, 4))


@pytest.mark.parametrize("launcher", ["shell", "slurm", "kubernetes", "skypilot"])
def test_a_launched_plan_is_read_back(launcher: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('model = "llama3-8b"\nslice = "h100:2"\nbatch = 32\nreplicas = 3\n[plan]\ntensor = 2\n')
    made = ds.export(str(plan), to=f"vllm,{launcher}", out=str(tmp_path / "out"))
    back = ds.import_plan(str(tmp_path / "out"))
    assert (back.model, back.slice, back.plan["tensor"], back.workload["replicas"]) == ("llama3-8b", "h100:2", 2, 3)
    text = "".join(line for line in made.text().splitlines(keepends=True) if not line.startswith("# dscale"))
    bare = ds.import_plan(text)
    assert (bare.model, bare.plan["tensor"]) == ("llama3-8b", 2)
    if launcher in ("kubernetes", "skypilot"):
        assert (bare.slice, bare.workload["replicas"]) == ("h100:2", 3)
        edited = ds.import_plan(made.text().replace("replicas: 3", "replicas: 5"))
        assert edited.workload["replicas"] == 5


LWS = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
        containers:
        - image: vllm/vllm-openai:v0.8.5
          env: [{name: TP, value: "8"}]
          command: [sh, -c, "ray start; vllm serve m --tensor-parallel-size $TP --pipeline-parallel-size $(LWS_GROUP_SIZE)"]
          resources: {limits: {nvidia.com/gpu: "8"}}
    workerTemplate: {spec: {containers: [{command: [ray, start], resources: {limits: {nvidia.com/gpu: "8"}}}]}}
"""
TPU = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
spec:
  replicatedJobs:
  - replicas: 2
    template: {spec: {parallelism: 4, template: {spec: {
      nodeSelector: {cloud.google.com/gke-tpu-accelerator: tpu-v6e-slice, cloud.google.com/gke-tpu-topology: 4x4},
      containers: [{command: [python3, -m, vllm], args: [serve], resources: {limits: {google.com/tpu: 4}}}]}}}}
"""
IMAGE = """
apiVersion: v1
kind: Pod
spec:
  containers:
  - image: vllm/vllm-openai:v0.30
    args: [--model, m, --tensor-parallel-size, "4"]
    resources: {requests: {nvidia.com/gpu: 4}}
"""


def test_manifests_of_others_are_read() -> None:
    found = unwrapped(Source(LWS))
    command = found.command("vllm")
    assert command is not None
    assert command.words[3:] == ["--tensor-parallel-size", "8", "--pipeline-parallel-size", "2"]
    assert found.launch == {"slice": "h100:16", "replicas": 2}
    assert unwrapped(Source(TPU)).launch == {"slice": "v6e:4x4*2"}
    command = unwrapped(Source(IMAGE)).command("vllm")
    assert command is not None
    assert command.words[:4] == ["vllm", "serve", "--model", "m"]
    batch = unwrapped(Source("#!/bin/bash\n#SBATCH -N 2\n#SBATCH --gres=gpu:h200:8\nsrun torchrun t.py\n"))
    assert batch.launch == {"slice": "h200:16"}


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nkind: Pod\n",
        "apiVersion: v1\nkind: Pod\nspec: 3\n",
        "apiVersion: a\nkind: JobSet\nspec: {replicatedJobs: [1, {template: []}]}\n",
        "resources: 3\nrun: x\n",
        "resources: {accelerators: [H100]}\nnum_nodes: many\nrun: vllm\n",
        "#SBATCH --gpus-per-node=many\nvllm\n",
        (
            "apiVersion: v1\nkind: Deployment\nspec: {replicas: -1, template: {spec: {containers: [{command: vllm}, "
            "3]}}}\n"
        ),
    ],
)
def test_a_strange_manifest_breaks_nothing(text: str) -> None:
    unwrapped(Source(text))


GPUS = ("h100:16", "fsdp=16,zero=3,remat=block")
TRAINERS = {
    "megatron": ("h100:16", "fsdp=8,tensor=2,zero=1,remat=block"),
    "megatron-bridge": ("h100:16", "fsdp=8,tensor=2,zero=1,remat=block"),
    "torchtitan": GPUS,
    "accelerate": GPUS,
    "deepspeed": GPUS,
    "maxtext": ("v5p:4x4x4*2", "data=2,fsdp=64,zero=3,remat=block"),
}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["slurm", "kubernetes", "skypilot"])
@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_trainer_is_launched_and_read_back(trainer: str, launcher: str, tmp_path: Path) -> None:
    on, plan = TRAINERS[trainer]
    made = ds.export(
        plan,
        to=f"{trainer},{launcher}",
        model="llama3-8b",
        on=on,
        batch="256seq",
        seq="8192",
        tokens="100B",
        out=str(tmp_path / "out"),
    )
    first = next(iter(made.files.values()))
    if launcher == "slurm":
        subprocess.run(["bash", "-n"], input=first, text=True, check=True)
    else:
        (manifests if launcher == "kubernetes" else sky_task)(first)
    back = ds.import_plan(str(tmp_path / "out"))
    assert (back.model, back.slice, back.plan, back.workload["batch"]) == (made.model, made.slice, made.plan, 256)


@pytest.mark.parametrize(("engine", "on"), [("vllm", "h100:2"), ("vllm-tpu", "v6e:2x2")])
def test_replicas_need_a_router_where_the_launcher_puts_nothing_before_them(
    engine: str, on: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.toml"
    said = f'model = "llama3-8b"\nslice = "{on}"\nbatch = 32\nreplicas = 2\nengine = "{engine}"\n'
    plan.write_text(f"{said}[plan]\ntensor = {parse_slice(on).chips}\n")
    for launcher, routes in (("shell", False), ("slurm", False), ("kubernetes", True), ("skypilot", True)):
        made = ds.export(str(plan), to=f"{engine},{launcher}")
        assert any("behind a router" in note for note in made.notes) is not routes
        assert ("behind a router" in made.text()) is not routes


@pytest.mark.parametrize(("engine", "on", "word"), [("vllm-tpu", "v6e:2x2", "proxy"), ("vllm", "h100:8", "NIXL")])
def test_pools_need_what_no_launcher_starts(engine: str, on: str, word: str) -> None:
    """Nothing of tpu-inference's proxy is in a manifest; tasks of SkyPilot do not find each other."""
    run = serving_run(engine, "llama3-8b", on, f"tensor={parse_slice(on).chips}", pool=True)
    target = target_named(engine)
    for launcher in ("shell", "kubernetes", "skypilot"):
        found = " ".join(_written(run, target, target_named(launcher)).notes)
        assert (word in found) is (engine == "vllm-tpu" or launcher != "kubernetes"), launcher


@pytest.mark.parametrize(
    ("line", "chip"),
    [
        ("--gres=gpu:8\n#SBATCH --constraint=a100", "a100"),
        ("--gres=gpu:A100:8", "a100"),
        ("--gpus-per-node=a100-40gb:8", "a100-40gb"),
        ("--gpus-per-node=8\n#SBATCH -C v100-32g", ""),
    ],
)
def test_a_cluster_calls_a_chip_by_its_own_name(line: str, chip: str) -> None:
    source = unwrapped(Source(f"#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH {line}\nsrun python train.py", "job.sbatch"))
    assert source.launch.get("slice", "") == (f"{chip}:16" if chip else "")
