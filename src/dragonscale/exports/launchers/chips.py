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

from dragonscale.physics.hardware.catalogue import is_chip, load_chip

GKE_TPUS = {
    "v3": "tpu-v3-slice",
    "v4": "tpu-v4-podslice",
    "v5e": "tpu-v5-lite-podslice",
    "v5p": "tpu-v5p-slice",
    "v6e": "tpu-v6e-slice",
    "tpu7x": "tpu7x",
}
"""Values of `cloud.google.com/gke-tpu-accelerator` (GKE documentation, plan TPUs in GKE; xpk 1.16, system
characteristics)."""

GKE_GPUS = {
    "v100": "nvidia-tesla-v100",
    "a100-40gb": "nvidia-tesla-a100",
    "a100": "nvidia-a100-80gb",
    "h100": "nvidia-h100-80gb",
    "h200": "nvidia-h200-141gb",
    "b200": "nvidia-b200",
    "gb200": "nvidia-gb200",
}
"""Values of `cloud.google.com/gke-accelerator` (GKE documentation, GPUs in GKE; xpk 1.16)."""

SKY = {
    "v100": "V100-32GB",
    "a100-40gb": "A100",
    "a100": "A100-80GB",
    "h100": "H100",
    "h200": "H200",
    "b200": "B200",
    "b300": "B300",
    "gb200": "GB200",
    "gb300": "GB300",
    "l40s": "L40S",
    "mi300x": "MI300X",
    "mi355x": "MI355X",
    "rtx4090": "RTX4090",
    "rtx5090": "RTX5090",
}
"""Accelerators of SkyPilot (0.14, list of canonical names)."""

_OTHERS = {
    "tpu-v3-device": "v3",
    "tpu-v5-lite-device": "v5e",
    "nvidia-h100-mega-80gb": "h100",
    "nvidia-gb300": "gb300",
    "p4d": "a100-40gb",
    "p4de": "a100",
    "p5": "h100",
    "p5e": "h200",
    "p5en": "h200",
    "p6-b200": "b200",
    "p6e-gb200": "gb200",
    "a2-highgpu": "a100-40gb",
    "a2-ultragpu": "a100",
    "a3-highgpu": "h100",
    "a3-megagpu": "h100",
    "a3-ultragpu": "h200",
    "a4-highgpu": "b200",
    "a4x-highgpu": "gb200",
    "nd96isr_h100": "h100",
    "nd96isr_h200": "h200",
    "nd96asr": "a100-40gb",
    "nd96amsr": "a100",
}
"""Other labels and the first words of machine types (AWS, Google Cloud and Azure documentation)."""
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
