"""Chips as clusters know them: labels of nodes, resources of pods, accelerators of SkyPilot, and back; and the chips of
a host that a process sees, where several replicas share a host.

A GPU is hidden by a variable of its driver. A TPU process takes every chip of its host unless libtpu is told which
chips it has, the block that they form, and that it is alone in its slice; two processes on a host need different ports
of libtpu too. `place` is the number of a replica on its host, as the shell counts it.

>>> (
...     chip_called("tpu-v5-lite-podslice"),
...     chip_called("nvidia-h100-mega-80gb"),
...     chip_called("A100-80GB"),
...     chip_called("p5.48xlarge"),
... )
('v5e', 'h100', 'a100', 'h100')
>>> chip_called("NVIDIA-H200"), chip_called("NVIDIA-B200"), chip_called("nvidia-l4")
('h200', 'b200', '')
>>> print(*own_chips(load_chip("v6e"), 4, "copy"), sep="\\n")
export TPU_VISIBLE_CHIPS=$(seq -s, $((copy * 4)) $((copy * 4 + 3)))
export TPU_CHIPS_PER_PROCESS_BOUNDS=2,2,1
export TPU_PROCESS_BOUNDS=1,1,1
export TPU_PROCESS_PORT=$((8476 + copy))
export TPU_PROCESS_ADDRESSES=localhost:$((8476 + copy))
export CLOUD_TPU_TASK_ID=0
"""

from dragonscale.exports.terms import load_terms
from dragonscale.physics.hardware.catalogue import is_chip, load_chip
from dragonscale.physics.hardware.chip import Chip

TERMS = load_terms("launchers")

GKE_TPUS = TERMS.tables["gke_tpus"]

GKE_GPUS = TERMS.tables["gke_gpus"]

SKY = TERMS.tables["skypilot_gpus"]

_OTHERS = TERMS.tables["machine_types"]
_BACK = {label.lower(): chip for table in (SKY, GKE_TPUS, GKE_GPUS) for chip, label in table.items()} | _OTHERS


def chip_called(label: str) -> str:
    """The chip of a label, a machine type or an accelerator's name; empty where it is not known."""
    text = label.strip().lower().removeprefix("standard_")
    if text in _BACK:
        return _BACK[text]
    for part in (text.partition(".")[0], text.rpartition("-")[0], text.rpartition("_")[0]):
        if part in _BACK:
            return _BACK[part]
    return _product(text)


def _product(text: str) -> str:
    """A product as the driver names it: `NVIDIA-H100-80GB-HBM3`, `AMD_Instinct_MI300X`."""
    for lead in ("nvidia-", "nvidia_", "amd_instinct_", "amd-instinct-", "geforce-", "geforce_"):
        text = text.removeprefix(lead)
    words = text.replace("_", "-").split("-")
    if words[0] == "a100" and "40gb" in words:
        return "a100-40gb"
    return load_chip(words[0]).name if is_chip(words[0]) else ""


def resource_of(chip: str, kind: str) -> str:
    """The resource that a pod asks for."""
    return "google.com/tpu" if kind == "tpu" else "amd.com/gpu" if chip.startswith("mi") else "nvidia.com/gpu"


RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "google.com/tpu")


BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}
"""Blocks of a host's chips that libtpu gives to one process. 1, 2 and 4: the list by one of JAX's authors that
jax-ml/jax#14977 and Ray's TPU support refer to (gist.github.com/skye/f82ba45d2445bb19d53545538754f9a3); 8: the topology
2x4 of a whole host of v5e or v6e. tpu-inference writes 1,4,1 for four chips of its own processes (tpu_worker.py): that
is as many chips, but the slice that is planned is 2x2."""
LIBTPU_PORT = 8476
"""Where libtpu listens by itself; tpu-inference gives its own processes on a host different ones (tpu_worker.py)."""


def is_amd(chip: Chip) -> bool:
    return chip.kind == "gpu" and chip.name.startswith("mi")


def own_chips(chip: Chip, chips: int, place: str) -> list[str]:
    """Lines that leave a process so many chips of a host that is its own."""
    listed = f"$(seq -s, $(({place} * {chips})) $(({place} * {chips} + {chips - 1})))"
    if chip.kind == "gpu":
        return [f"export {_variable(chip)}={listed}"]
    if chips not in BOUNDS or chip.host_chips % chips:
        legal = ", ".join(str(count) for count in BOUNDS if count <= chip.host_chips and chip.host_chips % count == 0)
        raise TERMS.refused("libtpu_blocks", chip=chip, legal=legal, chips=chips)
    port = f"$(({LIBTPU_PORT} + {place}))"
    said = TERMS.group("libtpu", listed=listed, bounds=BOUNDS[chips], port=port, address=f"localhost:{port}")
    return [f"export {name}={value}" for name, value in said.items()]


def own_part(chip: Chip, chips: int, place: str) -> list[str]:
    """The same inside a task of Slurm, which says itself which GPUs of the host the job has: a replica takes its part
    of that list. Slurm sets the variable anew for each step (gres_gpu), so that only the task can narrow it."""
    if chip.kind != "gpu":
        return own_chips(chip, chips, place)
    every, name = ",".join(map(str, range(chip.host_chips))), _variable(chip)
    fields = f"$(({place} * {chips} + 1))-$(({place} * {chips} + {chips}))"
    return [f"given=${{{name}:-{every}}}", f'export {name}=$(cut -d, -f{fields} <<< "$given")']


def _variable(chip: Chip) -> str:
    return "HIP_VISIBLE_DEVICES" if is_amd(chip) else "CUDA_VISIBLE_DEVICES"
