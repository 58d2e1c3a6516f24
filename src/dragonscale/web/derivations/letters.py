"""What the letters of a plan's formulas stand for, and where their numbers come from."""

from collections.abc import Iterator, Mapping

from dragonscale.physics.hardware import Chip
from dragonscale.physics.units import render
from dragonscale.web.derivations.pieces import Piece, fact_origin, letter

MODEL = {
    "D": "width of the residual stream",
    "F": "hidden width of the MLP (of an expert, where there are experts)",
    "F_s": "hidden width of the shared experts",
    "N": "query heads",
    "K": "key and value heads",
    "H": "size of a head",
    "V": "vocabulary",
    "E": "experts of a layer",
    "k": "experts that a token goes to",
    "L": "layers",
}
WORK = {
    "B": "sequences of a step",
    "T": "tokens of a sequence",
    "mb": "sequences of a microbatch on each replica",
    "S": "tokens that a sequence has in the cache",
    "virtual": "stages that a rank of the pipeline has",
}
AXES = {
    "data": "chips over which sequences are split, each with all weights",
    "fsdp": "chips over which sequences and weights are split",
    "tensor": "chips over which heads and hidden widths are split",
    "context": "chips over which a sequence is split",
    "expert": "chips over which experts are split",
    "pipe": "stages of the pipeline",
    "width": "chips over which the width is split",
}
ORIGIN = {"model": "the model's config", "work": "the workload that was asked", "plan": "the plan"}


def letters_of(
    values: Mapping[str, float], chip: Chip, model: str, work: Mapping[str, str] | None = None
) -> Iterator[Piece]:
    """A row for each letter; one that has a number behind its name is another size of the same kind."""
    said = WORK | dict(work or {})
    for name, value in values.items():
        bare = name.rstrip("0123456789") or name
        if name in said or bare in said:
            yield letter(
                name,
                f"{value:,.6g}",
                said.get(name, said.get(bare, "")),
                ORIGIN["plan" if bare in ("mb", "virtual") else "work"],
            )
        elif bare in MODEL or bare.startswith("L_"):
            what = MODEL.get(bare, f"layers of the kind {bare[2:]}")
            yield letter(name, f"{value:,.6g}", what, f"{ORIGIN['model']} ({model})")
        elif bare in AXES:
            yield letter(name, f"{value:,.6g}", AXES[bare], ORIGIN["plan"])
        elif name.startswith(("C", "W", "t_")):
            yield _rate(name, value, chip)
        else:
            yield letter(name, f"{value:,.6g}", f"the model's dim {name}", f"{ORIGIN['model']} ({model})")


def _rate(name: str, value: float, chip: Chip) -> Piece:
    """A rate of the chip, with the source that its file names."""
    kind, _, rest = name.partition("_")
    if kind == "C":
        dtype = rest or "bf16"
        return letter(
            name, render(value, "FLOP/s"), f"peak of the matrix unit in {dtype}", fact_origin(chip, f"matrix.{dtype}")
        )
    unit = "s" if kind == "t" else "bytes/s"
    paths = {
        "hbm": ("memory.hbm.bandwidth", "bandwidth of HBM"),
        "ici": ("ici.link", "both directions of the ICI links of one axis"),
        "dcn": ("dcn.egress", "what a chip sends over the data centre's network"),
        "hop": ("ici.hop_latency", "latency of a hop"),
        "pcie": ("pcie", "bandwidth to the host"),
    }
    if rest in paths:
        path, what = paths[rest]
    elif f"memory.{rest}.bandwidth" in chip.facts:
        path, what = f"memory.{rest}.bandwidth", f"bandwidth of {rest}"
    else:
        key = "latency" if kind == "t" else "bandwidth"
        path, what = f"levels.{rest}.{key}", f"{key} between a {rest} and what is under it, one way"
    return letter(name, render(value, unit), what, fact_origin(chip, path))
