"""torchtitan's stdout.

    [rank0]:[titan] 2025-06-04 08:51:58,557 - root - INFO - step: 10  loss: 10.7069  grad_norm:  3.1  memory:
    30.99GiB(32.62%)
        tps: 7,034  tflops: 407.35  mfu: 41.19%

`tps` is of one chip (`wps` before 2025), the mean since the line before, so a step takes the tokens of a step over it
and the chips. `memory` is the peak that PyTorch had reserved. The lines at the start say the mesh, the batch and the
device.
"""

import re

from dragonscale.evidence.logs.text import LogText, number
from dragonscale.evidence.logs.training_log import LoggedStep, TrainingLog

NAME, KIND = "torchtitan", "training"
_STEP = re.compile(
    r"(?<!validate )\bstep:\s+(\d+)\s+loss:.*?memory:\s+([\d.]+)GiB\([\d.]+%\)\s+[tw]ps:\s+([\d,]+)"
    r"(?:\s+tflops:\s+([\d,.]+))?(?:\s+mfu:\s+([\d.]+)%)?"
)
_RANK = re.compile(r"^\s*\[(?:default|rank)(\d+)\]:")
_BATCH = re.compile(r"local batch size (\d+), global batch size (\d+),.*?sequence length (\d+),")
_MESH = re.compile(
    r"Building device mesh with parallelism: (.+)|Building (\d+)-D device mesh with \[(.+?)\], \[(.+?)\]"
)
_DEVICE = re.compile(r"\b\w+ capacity: (.+?) with [\d.]+GiB memory")
_MODEL = re.compile(r"\bModel (\S+) (\S+) size: [\d,]+ total parameters")
_RECOMPUTE = re.compile(r"Applied (\w+) activation checkpointing")
_POLICIES = {"full": "block", "fullac": "block", "selective": "selective", "selectiveac": "selective"}
"""Policies by the words of releases before and after they became classes."""
_DEGREES = {"pp": "pipe", "dp_replicate": "data", "dp_shard": "fsdp", "cp": "context", "tp": "tensor", "ep": "expert"}


def recognises(log: LogText) -> bool:
    return any(_STEP.search(line) for line in log.lines)


def read(log: LogText) -> TrainingLog:
    """Every step of the first rank that logs, and what the start says."""
    found = [(_rank(line), match) for line in log.lines if (match := _STEP.search(line))]
    own = [match for rank, match in found if rank == found[0][0]]
    steps = [LoggedStep(int(one[1]), tokens=number(one[3]), flops=_tera(one[4])) for one in own]
    shares = sorted(share for one in own[1:] if (share := number(one[5])) is not None)
    batch, mesh = _last(_BATCH, log), _mesh(log)
    device, model = _last(_DEVICE, log), _last(_MODEL, log)
    chips = 1
    for name, degree in mesh.items():
        chips *= degree if name != "expert" else 1  # experts lie on the chips of the other axes
    return TrainingLog(
        NAME,
        tuple(steps),
        max((number(one[2]) or 0.0) for one in own) * 2**30,
        "max_reserved",
        mfu=shares[len(shares) // 2] / 100 if shares else None,
        batch=int(batch[2]) if batch else 0,
        seq=int(batch[3]) if batch else 0,
        chips=chips if mesh else 0,
        chip=device[1] if device else "",
        model=f"{model[1]}-{model[2]}".lower() if model else "",
        plan=",".join(f"{name}={value}" for name, value in {**mesh, **_recompute(log)}.items()) if mesh else "",
    )


def _rank(line: str) -> str:
    found = _RANK.match(line)
    return found[1] if found else ""


def _tera(text: str | None) -> float | None:
    found = number(text)
    return None if found is None else found * 1e12


def _last(pattern: re.Pattern[str], log: LogText) -> re.Match[str] | None:
    """The last line that says something: that of the last start."""
    found = [match for line in log.lines if (match := pattern.search(line))]
    return found[-1] if found else None


def _recompute(log: LogText) -> dict[str, str]:
    """The policy that was applied; none where the log tells of none."""
    found = _last(_RECOMPUTE, log)
    policy = _POLICIES.get(found[1].lower()) if found else None
    return {"remat": policy} if policy else {}


def _mesh(log: LogText) -> dict[str, int]:
    """Degrees by the names of a plan: `pp=1, dp_shard=8, tp=1`, or `Building 2-D device mesh with ['dp_shard', 'tp'],
    [4, 2]`."""
    found = _last(_MESH, log)
    if found is None:
        return {}
    if found[1]:
        pairs = [part.split("=") for part in found[1].split(",") if part.count("=") == 1]
    else:
        names = [name.strip(" '\"") for name in found[3].split(",")]
        pairs = [list(pair) for pair in zip(names, found[4].split(","), strict=False)]
    read = {_DEGREES.get(name.strip(), ""): value.strip() for name, value in pairs}
    return {name: int(value) for name, value in read.items() if name and value.isdecimal() and len(value) <= 9}
