"""Pods: what the kinds of Kubernetes that start programs have in common.

A pod is one host's part of a program: its container, the chips it asks for, the nodes it goes to, shared memory for the
processes inside (NCCL and PyTorch pass tensors through `/dev/shm`, of which a container has 64 MB otherwise), and the
config files.
"""

import re
from collections.abc import Mapping
from typing import Any

from dragonscale.errors import Infeasible
from dragonscale.exports.launchers.cluster_chips import GKE_GPUS, GKE_TPUS, resource_of
from dragonscale.exports.launchers.launch_parts import image_of, run_of
from dragonscale.exports.runs import Run
from dragonscale.exports.target import Target
from dragonscale.exports.written import LaunchProgram
from dragonscale.physics.hardware import Slice

CONFIG = "/config"
"""Where the config files are in a container."""
NODEPOOL = "cloud.google.com/gke-nodepool"
_TOKEN = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}}
"""A token for gated models, from a secret that may be there."""

POD_IP = {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
"""The address that vLLM's NIXL connector hands out to the other pool."""


def pod(
    run: Run, target: Target, program: LaunchProgram, script: str, config: str = "", **container: Any
) -> dict[str, Any]:
    """The spec of a pod that runs a script; `config` names the ConfigMap of its files, `container` has further entries
    (env, ports, probes)."""
    env = [{"name": name, "value": verbatim(value)} for name, value in program.env.items()]
    more = [*container.pop("env", []), *([POD_IP] if "VLLM_NIXL_SIDE_CHANNEL_PORT" in program.env else [])]
    one: dict[str, Any] = {"name": program.name, "image": image_of(program, run, target)}
    one |= {"command": ["bash", "-c", verbatim(script)], "env": [*env, *more, _TOKEN], **container}
    spec: dict[str, Any] = {"containers": [one]}
    mounts, volumes = [], []
    if program.chips:
        piece = run_of(program, run).slice
        resource = resource_of(piece.chip.name, piece.chip.kind)
        one["resources"] = {"limits": {resource: program.chips}}
        spec = {"nodeSelector": selector(piece), "tolerations": [{"key": resource, "operator": "Exists"}], **spec}
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
    if config:
        mounts.append({"name": "config", "mountPath": CONFIG})
        volumes.append({"name": "config", "configMap": {"name": config}})
    one |= {"volumeMounts": mounts} if mounts else {}
    spec |= {"volumes": volumes} if volumes else {}
    return {name: value for name, value in spec.items() if value != {}}


def verbatim(text: str) -> str:
    """Text that a container gets as it is: in commands, arguments and values Kubernetes puts a variable in place of
    `$(NAME)`, and `$` of `$$`.

    >>> verbatim("$HOME $(HF_TOKEN) $$")
    '$HOME $$(HF_TOKEN) $$$'
    """
    return re.sub(r"\$(?=[$(])", "$$", text)


def selector(piece: Slice) -> dict[str, str]:
    """The labels of the nodes that a slice is made of; none where no cloud's labels are known."""
    chip = piece.chip
    if chip.kind == "gpu":
        return {"cloud.google.com/gke-accelerator": GKE_GPUS[chip.name]} if chip.name in GKE_GPUS else {}
    if chip.name not in GKE_TPUS:
        raise Infeasible(f"GKE has no {chip.title}; it has {', '.join(GKE_TPUS)}.")
    shape = "x".join(map(str, sorted(piece.shape)))
    return {"cloud.google.com/gke-tpu-accelerator": GKE_TPUS[chip.name], "cloud.google.com/gke-tpu-topology": shape}


VERSIONS = {
    "Service": "v1",
    "Deployment": "apps/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "DynamoGraphDeployment": "nvidia.com/v1beta1",
}


def manifest(kind: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """An object of Kubernetes."""
    return {"apiVersion": VERSIONS[kind], "kind": kind, "metadata": metadata, "spec": spec}


def group_spec(program: LaunchProgram, leader: Mapping[str, Any], worker: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a LeaderWorkerSet: a template for the first pod of a group, a pod for the others."""
    group: dict[str, Any] = {"size": program.hosts, "restartPolicy": "RecreateGroupOnPodRestart"}
    group |= {"leaderTemplate": leader, "workerTemplate": {"spec": worker}}
    return {"replicas": program.copies, "leaderWorkerTemplate": group}


def config_map(name: str, files: Mapping[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": dict(files)}


def service(name: str, port: int, labels: Mapping[str, str]) -> dict[str, Any]:
    """A Service in front of what answers requests."""
    ports = [{"name": "http", "port": port, "targetPort": port}]
    return manifest("Service", {"name": name}, {"selector": dict(labels), "ports": ports})


def probes(port: int) -> dict[str, Any]:
    """An engine takes requests once `/health` answers; its weights may load for an hour before that."""
    check = {"httpGet": {"path": "/health", "port": port}}
    slow = {"startupProbe": {**check, "periodSeconds": 10, "failureThreshold": 360}}
    return {"ports": [{"containerPort": port}], **slow, "readinessProbe": {**check, "periodSeconds": 5}}
