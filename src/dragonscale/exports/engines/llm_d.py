"""llm-d: pods of plain `vllm serve` that its router finds by their labels, on Kubernetes.

As in llm-d's guides, a pool that prefills answers on port 8000; one that decodes answers on 8200 behind a sidecar on
8000, which fetches the prompt's cache from the pod that prefilled it (NIXL, the same role on both sides). A replica of
one host is a pod of a Deployment, one of several is a group of a LeaderWorkerSet. The router itself (gateway, endpoint
picker, its InferencePool) is installed once by llm-d's own chart.
"""

from dataclasses import replace
from typing import Any

from dragonscale.errors import Infeasible
from dragonscale.exports.engines import vllm
from dragonscale.exports.engines.vllm.write_vllm import both_roles
from dragonscale.exports.imported import Given, Imported, Source
from dragonscale.exports.keys import load_keys
from dragonscale.exports.launchers.kubernetes import TERMS as LAUNCHERS
from dragonscale.exports.launchers.kubernetes import group_place, pod, script
from dragonscale.exports.launchers.launch_parts import job_name, run_of, with_port
from dragonscale.exports.launchers.unwrap import Contained, assigned, containers, marks, pools_read
from dragonscale.exports.runs import ServingRun, comments, header
from dragonscale.exports.target import target_named
from dragonscale.exports.written import LaunchProgram, WrittenFiles, yaml_text

ROLE = "llm-d.ai/role"
SERVES = {"llm-d.ai/inference-serving": "true"}
PORTS = {"decode": 8200}
"""Behind the sidecar; other pods answer on 8000 themselves."""
SIDECAR = "ghcr.io/llm-d/llm-d-routing-sidecar:v0.8.0"


def write(run: ServingRun) -> WrittenFiles:
    """The manifests of the pools."""
    if run.slice.chip.kind != "gpu":
        chip = run.slice.chip.title
        raise Infeasible(f"Exports for llm-d are of vLLM on GPUs; for {chip} export vllm-tpu,kubernetes.")
    made = vllm.write(run)
    name = job_name(run, target_named("llm-d"))
    pools = [program for program in made.programs if program.chips]
    title = f"llm-d with vLLM {load_keys('vllm').version}"
    labels = f"app={name} and llm-d.ai/inference-serving=true"
    where = comments([f"Install llm-d's router with an InferencePool that selects {labels}."])
    documents = [yaml_text(_pool(run, program, name)) for program in pools]
    text = header(run, title, made.differences) + where + "---\n".join(documents)
    return WrittenFiles({"llm-d.k8s.yaml": text}, (), made.differences, made.as_run, made.notes)


def _pool(run: ServingRun, program: LaunchProgram, name: str) -> dict[str, Any]:
    role = program.name if program.name in ("prefill", "decode") else "both"
    port = PORTS.get(role, 8000)
    labels = {"app": name, **SERVES, ROLE: role}
    program = replace(program, port=port, words=tuple(with_port(both_roles(program.words), str(port))))
    ports = [{"name": "modelserver", "containerPort": port}]
    ports += [{"name": "nixl", "containerPort": 5600}] if role != "both" else []
    check = {"httpGet": {"path": "/v1/models", "port": "modelserver"}}
    probes: dict[str, Any] = {"startupProbe": {**check, "periodSeconds": 30, "failureThreshold": 120}}
    probes["readinessProbe"] = {**check, "periodSeconds": 5}
    own, several, program = run_of(program, run), program.hosts > 1, replace(program, name="modelserver")
    ranks = group_place() if several else ("0", "127.0.0.1")
    spec = pod(own, target_named("vllm"), program, script(program, *ranks), ports=ports, **probes)
    if role == "decode":
        spec = {"initContainers": [_sidecar()], **spec}
    values = {"name": f"{name}-{role}", "labels": labels, "labelled": True, "pinned": {}, "pod": spec}
    if not several:
        return LAUNCHERS.group("deployment", program, **values)
    worker = pod(own, target_named("vllm"), program, script(program, *ranks), ports=ports)
    return LAUNCHERS.group("leaders", program, worker=worker, **values)


def _sidecar() -> dict[str, Any]:
    """What stands before a pod that decodes, and asks for the prompt's cache first."""
    args = ["--port=8000", "--kv-connector=nixlv2", "--secure-serving=false"]
    container = {"name": "routing-proxy", "image": SIDECAR, "args": args, "restartPolicy": "Always"}
    return container | {"ports": [{"name": "sidecar", "containerPort": 8000}]}


def recognises(source: Source) -> bool:
    return any(marks(table.get("spec"), ROLE) for table in source.tables)


def read(source: Source, given: Given) -> Imported:
    """The plan of the pods; those that decode, or do both, are the plan's."""
    every = [("prefill" in marks(table, ROLE), one) for table in source.tables for one in containers(table)]
    found = [(prefills, one) for prefills, one in every if "vllm" in one.script]
    if not found:
        return vllm.read(source, given)  # says what is missing
    found.sort(key=lambda one: one[0])
    pools = [(_command(one, prefills), one.labels, one.chips * one.pods, one.copies) for prefills, one in found[:2]]
    back = pools_read(source, given, pools, vllm.read)
    return replace(back, target="llm-d")


def _command(one: Contained, prefills: bool) -> str:
    script = one.script.replace("kv_both", "kv_producer" if prefills else "kv_consumer")
    return "".join(f"{line}\n" for line in assigned(one.names)) + script
