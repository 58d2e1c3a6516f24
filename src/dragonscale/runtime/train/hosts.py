"""Several processes as one run: who else is there, by what the scheduler put into the environment.

`found_host` is a pure function of an environment; `join` tells JAX. Looked for, in this order: JAX's own variables,
Slurm, Kubernetes (a JobSet, an indexed Job, Kubeflow's JAXJob, a GKE TPU slice), and the variables of torchrun, which
many schedulers set too. A single process needs none of them.
"""

import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from dragonscale.errors import InputError, shorten

PORT = 8476
"""Where processes meet if nobody says otherwise: the port of JAX's own TPU start-up."""
NAMES_S = 10
"""Seconds in which a host's name has to be known; under Kubernetes, where names come with pods, as long as all wait."""


@dataclass(frozen=True)
class Host:
    """One of `count` processes that meet at `address`. `local` is its place among those of one machine, where each is
    to use one device only; None: it uses all it sees. `names` are hosts that the scheduler names beside."""

    address: str
    count: int
    index: int
    local: int | None = None
    source: str = "jax"
    names: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @property
    def told(self) -> str:
        return f"Process {self.index} of {self.count} ({self.source})"


def found_host(environ: Mapping[str, str]) -> Host | None:
    """The place of this process among others, or None if it is alone.

    >>> found_host({"SLURM_JOB_ID": "77", "SLURM_NTASKS": "2", "SLURM_PROCID": "1", "SLURM_STEP_NODELIST": "n[07-08]"})
    Host(address='n07:61517', count=2, index=1, local=None, source='slurm')
    >>> found_host({}) is None
    True
    """
    read = next((reader for needed, reader in _READERS if _has(environ, *needed.split())), None)
    host = read(environ) if read is not None else None
    if host is None or host.count <= 1:
        return None
    if not 0 <= host.index < host.count:
        raise InputError(
            f"The environment ({host.source}) says that this is process {host.index} of {host.count}; they count "
            f"from 0 to {host.count - 1}."
        )
    return host


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ[name].strip()
    if not re.fullmatch(r"\d{1,9}", text):
        raise InputError(f"The environment variable {name} is {shorten(text)}, which is not a whole number.")
    return int(text)


def _first(environ: Mapping[str, str], names: tuple[str, ...], other: int) -> int:
    """The first of some numbers that there is."""
    return next((_number(environ, name) for name in names if _has(environ, name)), other)


def _has(environ: Mapping[str, str], *names: str) -> bool:
    return all(environ.get(name, "").strip() for name in names)


def _jax(environ: Mapping[str, str]) -> Host:
    index = _number(environ, "JAX_PROCESS_ID")
    return Host(environ["JAX_COORDINATOR_ADDRESS"], _number(environ, "JAX_NUM_PROCESSES"), index)


def _slurm(environ: Mapping[str, str]) -> Host:
    """A step of `srun`. The port comes from the job's number, so that jobs on one machine do not meet."""
    nodes = environ.get("SLURM_STEP_NODELIST") or environ["SLURM_JOB_NODELIST"]
    count = _first(environ, ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), 1)
    machines = _first(environ, ("SLURM_STEP_NUM_NODES", "SLURM_NNODES"), count)
    port = 61440 + _number(environ, "SLURM_JOB_ID") % 4096
    several = count > machines and _has(environ, "SLURM_LOCALID")
    local = _number(environ, "SLURM_LOCALID") if several else None
    return Host(f"{first_node(nodes)}:{port}", count, _number(environ, "SLURM_PROCID"), local, "slurm")


def first_node(nodes: str) -> str:
    """The first machine of a Slurm list.

    >>> [first_node(text) for text in ("a1", "a1,b2", "node[001-016],x", "gpu[3,7-9]-ib", "r[1-2]n[01-04]")]
    ['a1', 'a1', 'node001', 'gpu3-ib', 'r1n01']
    """
    depth, end = 0, len(nodes)
    for place, letter in enumerate(nodes):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            end = place
            break
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", nodes[:end])


def _jobset(environ: Mapping[str, str]) -> Host:
    """A Kubernetes JobSet: pods `SET-JOB-REPLICA-INDEX` in the domain of the set, index 0 of replica 0 first."""
    name = environ["JOBSET_NAME"]
    count, index = _number(environ, "NUM_PROCESSES"), _number(environ, "JOB_COMPLETION_INDEX")
    if _has(environ, "JOB_INDEX", "PROCESSES_PER_JOB"):
        index += _number(environ, "JOB_INDEX") * _number(environ, "PROCESSES_PER_JOB")
    address = f"{name}-{environ['REPLICATED_JOB_NAME']}-0-0.{name}:{_first(environ, _PORT, PORT)}"
    return Host(address, count, index, source="kubernetes")


def _coordinated(environ: Mapping[str, str]) -> Host:
    """Kubeflow's JAXJob and any pod that is told its process; or an indexed Job, which knows its pod's number, and
    whose author must say how many there are and where they meet."""
    own = "PROCESS_ID" if _has(environ, "PROCESS_ID") else "JOB_COMPLETION_INDEX"
    address = environ["COORDINATOR_ADDRESS"]
    address = address if ":" in address else f"{address}:{_first(environ, _PORT, PORT)}"
    return Host(address, _number(environ, "NUM_PROCESSES"), _number(environ, own), source="kubernetes")


def _tpu(environ: Mapping[str, str]) -> Host:
    """A GKE TPU slice: the names of its hosts, and which this is."""
    names = [name.strip() for name in environ["TPU_WORKER_HOSTNAMES"].split(",") if name.strip()]
    return Host(f"{names[0]}:{PORT}", len(names), _number(environ, "TPU_WORKER_ID"), None, "tpu", tuple(names))


def _torchrun(environ: Mapping[str, str]) -> Host:
    count = _number(environ, "WORLD_SIZE")
    several = _has(environ, "LOCAL_WORLD_SIZE", "LOCAL_RANK") and _number(environ, "LOCAL_WORLD_SIZE") > 1
    address = f"{environ['MASTER_ADDR']}:{_number(environ, 'MASTER_PORT')}"
    local = _number(environ, "LOCAL_RANK") if several else None
    return Host(address, count, _number(environ, "RANK"), local, "torchrun")


_PORT = ("COORDINATOR_PORT",)
_READERS = (
    ("JAX_COORDINATOR_ADDRESS JAX_NUM_PROCESSES JAX_PROCESS_ID", _jax),
    ("SLURM_JOB_ID SLURM_PROCID SLURM_STEP_NODELIST", _slurm),
    ("SLURM_JOB_ID SLURM_PROCID SLURM_JOB_NODELIST", _slurm),
    ("JOBSET_NAME REPLICATED_JOB_NAME JOB_COMPLETION_INDEX NUM_PROCESSES", _jobset),
    ("COORDINATOR_ADDRESS NUM_PROCESSES PROCESS_ID", _coordinated),
    ("COORDINATOR_ADDRESS NUM_PROCESSES KUBERNETES_SERVICE_HOST JOB_COMPLETION_INDEX", _coordinated),
    ("TPU_WORKER_HOSTNAMES TPU_WORKER_ID", _tpu),
    ("MASTER_ADDR MASTER_PORT WORLD_SIZE RANK", _torchrun),
)
"""The variables that each scheduler sets, in the order in which they are looked for."""


def check_names(host: Host, patience_s: float) -> None:
    """Refuse hosts that nobody can find by their names, which JAX would wait for without a word."""
    name, _, port = host.address.rpartition(":")
    if not name or not re.fullmatch(r"\d{1,5}", port) or not 0 < int(port) < 65536:
        raise InputError(f"{host.told} is to meet the others at {shorten(host.address)}, which is no HOST:PORT.")
    until = time.monotonic() + (patience_s if host.source == "kubernetes" else min(NAMES_S, patience_s))
    for one in dict.fromkeys((name.strip("[]"), *host.names)):
        while True:
            try:
                socket.getaddrinfo(one, int(port))
                break
            except (OSError, UnicodeError) as error:
                if time.monotonic() >= until:
                    why = getattr(error, "strerror", None) or error
                    raise InputError(f"{host.told} finds no host by the name {shorten(one)} ({why}).") from None
                time.sleep(0.5)


def join(host: Host | None, patience_s: int = 300) -> None:
    """Meet the others; a process alone does nothing."""
    if host is None:
        return
    check_names(host, patience_s)
    import jax

    cpu = getattr(jax.config, "jax_platforms", None) == "cpu"
    own = [host.local] if host.local is not None and not cpu else None
    try:
        jax.distributed.initialize(host.address, host.count, host.index, own, initialization_timeout=patience_s)
    except RuntimeError as error:
        raise InputError(
            f"{host.told} did not meet the others at {host.address}: {str(error).splitlines()[0][:200]}"
        ) from None
