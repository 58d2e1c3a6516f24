"""Manifests for Kubernetes.

Training is a JobSet: a Job for each TPU slice (pinned to a node pool of its own), or one Job over all GPU hosts, a pod
on each host. Processes find each other by the names that a JobSet gives its pods. Serving is a Deployment where a
replica is one host, and a LeaderWorkerSet where it is several, with a Service in front of those that answer. Config
files travel in a ConfigMap, so one file is all there is to apply.

A pod is one host's part of a program: its container, the chips it asks for, the nodes it goes to, shared memory for the
processes inside (NCCL and PyTorch pass tensors through `/dev/shm`, of which a container has 64 MB otherwise), and the
config files.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dragonscale.errors import Infeasible
from dragonscale.exports.launchers import launch_parts as parts
from dragonscale.exports.launchers.shell import SERVED
from dragonscale.exports.runs import Run, ServingRun, comments, header
from dragonscale.exports.target import Target
from dragonscale.exports.terms import load_terms
from dragonscale.exports.written import RANK, CopyAddress, LaunchProgram, Part, Word, WrittenFiles, expansion, yaml_text
from dragonscale.physics.hardware import Slice

CONFIG = "/config"
"""Where the config files are in a container."""
NODEPOOL = "cloud.google.com/gke-nodepool"
_TOKEN = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}}
"""A token for gated models, from a secret that may be there."""

POD_IP = {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
"""The address that vLLM's NIXL connector hands out to the other pool."""


def pod(
    run: Run, target: Target, program: LaunchProgram, script: str, config: str = "", shm: bool = True, **container: Any
) -> dict[str, Any]:
    """The spec of a pod that runs a script; `config` names the ConfigMap of its files, `shm` that it brings shared
    memory, `container` has further entries (env, ports, probes)."""
    env = [{"name": name, "value": verbatim(value)} for name, value in program.env.items()]
    more = [*container.pop("env", []), *([POD_IP] if "VLLM_NIXL_SIDE_CHANNEL_PORT" in program.env else [])]
    one: dict[str, Any] = {"name": program.name, "image": parts.image_of(program, run, target)}
    one |= {"command": ["bash", "-c", verbatim(script)], "env": [*env, *more, _TOKEN], **container}
    spec: dict[str, Any] = {"containers": [one]}
    mounts, volumes = [], []
    if program.chips:
        piece = parts.run_of(program, run).slice
        resource = parts.resource_of(piece.chip.name, piece.chip.kind)
        one["resources"] = {"limits": {resource: program.chips}}
        spec = {"nodeSelector": selector(piece), "tolerations": [{"key": resource, "operator": "Exists"}], **spec}
    if program.chips and shm:
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
        return {"cloud.google.com/gke-accelerator": parts.GKE_GPUS[chip.name]} if chip.name in parts.GKE_GPUS else {}
    if chip.name not in parts.GKE_TPUS:
        raise Infeasible(f"GKE has no {chip.title}; it has {', '.join(parts.GKE_TPUS)}.")
    shape = "x".join(map(str, sorted(piece.shape)))
    return {
        "cloud.google.com/gke-tpu-accelerator": parts.GKE_TPUS[chip.name],
        "cloud.google.com/gke-tpu-topology": shape,
    }


TERMS = load_terms("launchers")

HOLDS_FILES = True
"""The config files are inside the manifest."""
ROUTES = "programs"
"""A Service stands before replicas, and programs find each other by the names of theirs."""


def launch(run: Run, target: Target, written: WrittenFiles) -> dict[str, str]:
    """One file with all manifests."""
    name = parts.job_name(run, target)
    _check(target, written.programs)
    config = f"{name}-config" if written.files else ""
    written = _addressed(written, name)
    programs = [parts.with_files(program, CONFIG) for program in written.programs]
    documents = [TERMS.group("config_map", name=config, files=written.files)] if config else []
    for program in programs:
        own = name if len(programs) == 1 else f"{name}-{program.name}"
        made = _served if isinstance(run, ServingRun) else _trained
        documents += made(run, target, program, own, config)
    top = header(run, f"{target.title} {target.version}", written.differences)
    remarks = comments(_remarks(run, target, programs))
    return {f"{target.name}.k8s.yaml": top + remarks + "---\n".join(map(yaml_text, documents))}


def _check(target: Target, programs: Sequence[LaunchProgram]) -> None:
    if any(program.per == "rank" and program.hosts > 1 for program in programs):
        raise TERMS.refused("needs_mpi", target=target)


def _addressed(written: WrittenFiles, name: str) -> WrittenFiles:
    """Files and words in which other programs are named by their Services."""
    names = {program.name for program in written.programs}

    def by_service(part: Part) -> Part:
        if isinstance(part, CopyAddress) and part.program in names:
            return f"{name}-{part.program}:{part.port}"
        return part

    def in_text(match: re.Match[str]) -> str:
        return str(by_service(CopyAddress(match[1], int(match[2]), int(match[3]))))

    programs = [parts.with_words(program, by_service) for program in written.programs]
    named = {file: parts.ADDRESS.sub(in_text, written.files[file]) for file in written.addressed}
    return replace(written, programs=tuple(programs), files={**written.files, **named})


def _remarks(run: Run, target: Target, programs: Sequence[LaunchProgram]) -> list[str]:
    """What someone still has to fill in."""
    remarks = [parts.image_remark(program, run, target) for program in programs]
    lines = [*dict.fromkeys(one for one in remarks if one)]
    if run.slice.chip.kind == "gpu":
        lines.append("Node labels are those of GKE; elsewhere use nvidia.com/gpu.product or leave nodeSelector out.")
    if run.slice.chip.kind == "gpu" and any(program.hosts > 1 for program in programs):
        lines.append("Add what pods need for the network between hosts on your cluster (RDMA devices, hostNetwork).")
    return lines


def _trained(run: Run, target: Target, program: LaunchProgram, name: str, config: str) -> list[dict[str, Any]]:
    """A JobSet. The hosts of a program are those of all slices."""
    jobs = run.slice.pods
    hosts, job = max(program.hosts // jobs, 1), "slice" if run.slice.chip.kind == "tpu" else "worker"
    rank, env = expansion("$JOB_COMPLETION_INDEX"), []
    if jobs > 1 and parts.uses_words(program, RANK):
        rank = expansion(f"$((JOB_INDEX * {hosts} + JOB_COMPLETION_INDEX))")
        place = {"fieldRef": {"fieldPath": "metadata.annotations['jobset.sigs.k8s.io/job-index']"}}
        env = [{"name": "JOB_INDEX", "valueFrom": place}]
    inside = script(program, rank, f"{name}-{job}-0-0.{name}")
    spec = {"restartPolicy": "Never", **pod(run, target, program, inside, config, env=env)}
    pinned = {"alpha.jobset.sigs.k8s.io/exclusive-topology": NODEPOOL} if run.slice.chip.kind == "tpu" else {}
    return [TERMS.group("jobs", name=name, job=job, jobs=jobs, hosts=hosts, pod=spec, pinned=pinned)]


def script(program: LaunchProgram, rank: Word, leader: Word) -> str:
    """What a pod's shell runs; the command takes the shell's place, so that it gets the signal to end."""
    words = ("else", "fi")
    lines = parts.host_lines(program, rank, leader)
    return "\n".join(line if line in words or line.startswith("if [") else f"exec {line}" for line in lines)


def group_place() -> tuple[Word, Word]:
    """The number of a pod in its group, and the address of the first, as a LeaderWorkerSet says them."""
    return expansion("$LWS_WORKER_INDEX"), expansion("$LWS_LEADER_ADDRESS")


def _served(run: Run, target: Target, program: LaunchProgram, name: str, config: str) -> list[dict[str, Any]]:
    """A program's copies with the Service in front of them."""
    program = reachable(program)
    if program.hosts > 1:
        return _groups(run, target, program, name, config)
    labels, probes = {"app": name}, TERMS.group("probes", program)
    spec = pod(run, target, program, script(program, "0", "127.0.0.1"), config, **probes)
    values = {"name": name, "labels": labels, "labelled": False, "pod": spec}
    return [TERMS.group(group, program, **values) for group in ("deployment", "service")]


def reachable(program: LaunchProgram) -> LaunchProgram:
    """A program that says its port, so that a Service finds it."""
    port = program.port or SERVED
    return replace(program, port=port, words=tuple(parts.with_port(program.words, str(port))))


def _groups(run: Run, target: Target, program: LaunchProgram, name: str, config: str) -> list[dict[str, Any]]:
    """A LeaderWorkerSet: replicas of several hosts, of which the first answers."""
    inside = script(program, *group_place())
    first, worker = (pod(run, target, program, inside, config, **more) for more in (TERMS.group("probes", program), {}))
    tpu, labels = run.slice.chip.kind == "tpu", {"role": "leader"}
    pinned = {"leaderworkerset.sigs.k8s.io/exclusive-topology": NODEPOOL} if tpu else {}
    values = {"name": name, "pinned": pinned, "labels": labels, "labelled": False, "pod": first, "worker": worker}
    front = {"leaderworkerset.sigs.k8s.io/name": name, **labels}
    return [TERMS.group("leaders", program, **values), TERMS.group("service", program, name=name, labels=front)]
