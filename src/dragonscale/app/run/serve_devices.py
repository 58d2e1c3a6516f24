"""Which devices each worker of `dscale run serve` sees, and how much of their memory: said in its environment, before
JAX is loaded."""

import glob
import os
import re
import shutil
import subprocess

from dragonscale.errors import InputError, shorten
from dragonscale.runtime.server.wire import WorkerOrder
from dragonscale.serving.plan import parse_serving_plan

FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"


def environments(workers: list[WorkerOrder]) -> list[dict[str, str]]:
    """Which devices each worker sees: on GPUs a part of those there are; a TPU host belongs to one process."""
    if workers[0].cpu:
        return [{"JAX_PLATFORMS": "cpu"}] * len(workers)
    shared = {FRACTION: _fraction(workers[0].memory)}
    if len(workers) == 1:
        return [shared]
    if glob.glob("/dev/accel*") or glob.glob("/dev/vfio/[0-9]*"):
        raise InputError(
            f"{len(workers)} workers are asked for, and the TPUs of a host belong to one process; take --replicas 1 "
            "with data parallelism in the plan (dp2)."
        )
    devices, needed = _gpus(), [parse_serving_plan(one.plan).chips for one in workers]
    if len(devices) < sum(needed):
        raise InputError(
            f"{len(workers)} workers need {sum(needed)} devices, and there are {len(devices)}; take fewer "
            "replicas, or --cpu N."
        )
    ends = [sum(needed[: place + 1]) for place in range(len(needed))]
    return [
        shared | {"CUDA_VISIBLE_DEVICES": ",".join(devices[end - count : end])}
        for end, count in zip(ends, needed, strict=True)
    ]


def _fraction(memory: float) -> str:
    """The part of a GPU's memory that XLA takes, which pages are counted in: what its own variable says, or a little
    more than asked for."""
    said = os.environ.get(FRACTION, "") or f"{max(memory, 0.95):g}"
    if not re.fullmatch(r"0?\.\d+|1(\.0*)?", said) or not float(said):
        raise InputError(f"{FRACTION} is {shorten(said)} in the environment; write a number above 0 and up to 1.")
    return said


def _gpus() -> list[str]:
    """The GPUs that this process may use, by number."""
    said = os.environ.get("CUDA_VISIBLE_DEVICES")
    if said is not None:
        return [one.strip() for one in said.split(",") if one.strip()]
    if shutil.which("nvidia-smi") is None:
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False).stdout
    return [str(number) for number, _ in enumerate(line for line in listed.splitlines() if line.startswith("GPU "))]
