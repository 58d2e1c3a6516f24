"""What clusters call chips: labels of nodes, resources of pods, accelerators of SkyPilot; and back.

>>> (
...     chip_called("tpu-v5-lite-podslice"),
...     chip_called("nvidia-h100-mega-80gb"),
...     chip_called("A100-80GB"),
...     chip_called("p5.48xlarge"),
... )
('v5e', 'h100', 'a100', 'h100')
>>> chip_called("NVIDIA-H200"), chip_called("NVIDIA-B200"), chip_called("nvidia-l4")
('h200', 'b200', '')
"""

from dragonscale.exports.terms import load_terms
from dragonscale.physics.hardware.catalogue import is_chip, load_chip

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
