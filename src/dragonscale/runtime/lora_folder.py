"""LoRA adapters that are served beside one model: folders as PEFT writes them, read into one stack of thin matrices.

All adapters of a matmul lie side by side along their rank: with S of them, padded to the largest rank R, `Wq_a` is
[d, S·R] and `Wq_b` [S·R, n, h]. So the lines of a program with adapters of rank S·R compute every adapter's product at
once, and a token keeps the columns of its own (`lines`, from the number that a step has for each of its tokens). That
is S·R·(inputs + outputs) multiplications beside inputs·outputs: for eight adapters of rank 16 and 4,096 channels a
sixteenth. What PEFT multiplies the product by, alpha over the rank, is in the second matrix.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy

from dragonscale.errors import InputError, shorten
from dragonscale.models.latent import absorbed
from dragonscale.models.lora import RANK, Adapters, adapted_lines, with_adapters
from dragonscale.models.program import Program
from dragonscale.runtime.checkpoint import tensor_places, viewed
from dragonscale.runtime.parameters import WeightReader, weights_of
from dragonscale.runtime.safetensors import SafeTensors

CONFIG, START = "adapter_config.json", "base_model.model."
NOT_SERVED = {"use_dora": "DoRA", "modules_to_save": "whole modules", "trainable_token_indices": "trained tokens"}
"""Settings of PEFT that are more than two thin matrices beside a matmul."""


@dataclass(frozen=True)
class LoraFolder:
    """An adapter: what clients call it, its folder's settings and tensors."""

    name: str
    settings: dict[str, Any]
    tensors: SafeTensors

    def scale(self, module: str, rank: int) -> float:
        """What the product of a module's matrices is multiplied by."""
        patterns = self.settings.get("alpha_pattern") or {}
        own = next((one for key, one in patterns.items() if re.match(rf"(.*\.)?({key})$", module)), None)
        alpha = float(self.settings.get("lora_alpha", rank) if own is None else own)
        return alpha / (math.sqrt(rank) if self.settings.get("use_rslora") else rank)

    def matrix(self, module: str, half: str) -> numpy.ndarray:
        name = tensor_name(module, half)
        if name not in self.tensors:
            raise InputError(f"The adapter {shorten(self.name)} lacks the tensor {shorten(name, 160)}.")
        return numpy.asarray(self.tensors[name])


def tensor_name(module: str, half: str) -> str:
    return f"{START}{module}.lora_{half}.weight"


def read_lora(name: str, folder: str) -> LoraFolder:
    """An adapter's folder, or why it cannot be served."""
    path = Path(folder)
    try:
        settings = json.loads((path / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise InputError(f"{shorten(folder)} has no {CONFIG} that can be read; a LoRA is a folder of PEFT's.") from None
    if not isinstance(settings, dict) or settings.get("peft_type") != "LORA":
        raise InputError(f"The adapter {shorten(name)} is no LoRA by its {CONFIG}, and no other kind is served.")
    if more := [what for key, what in NOT_SERVED.items() if settings.get(key)]:
        raise InputError(f"The adapter {shorten(name)} has {more[0]} beside its matrices, which are not served.")
    return LoraFolder(name, settings, SafeTensors(path / "adapter_model.safetensors"))


@dataclass
class LoraStack:
    """Some adapters on a program's matmuls. `places` says of a section, a weight and a layer which module of which
    adapter is its own, and the layout that the whole matrix has in a checkpoint."""

    program: Program
    folders: Sequence[LoraFolder]
    rank: int = 0
    places: dict[tuple[str, str, int], list[tuple[int, str, str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, folder in enumerate(self.folders):
            used: set[str] = set()
            for key, module, layout in self._modules(folder):
                used |= {tensor_name(module, half) for half in "AB"}
                self.rank = max(self.rank, len(folder.matrix(module, "A")))
                self.places.setdefault(key, []).append((number, module, layout))
            if unknown := sorted(set(folder.tensors) - used):
                raise InputError(
                    f"The adapter {shorten(folder.name)} has the tensor {shorten(unknown[0], 160)}, which is no matrix "
                    "beside an attention or MLP matmul of this model as it is served."
                )

    def _modules(self, folder: LoraFolder) -> Iterator[tuple[tuple[str, str, int], str, str]]:
        """The modules of an adapter, each with the weight that it is for and the layout of its matrix."""
        start = f"{START}model."
        start = start if any(one.startswith(start) for one in folder.tensors) else f"{START}language_model.model."
        known = weights_of(self.program)
        for section in self.program.sections[1:-1]:
            if absorbed(section) is not section:  # its expansions are not matmuls of their own when it is served
                continue
            for name in {weight.name for _, weight in adapted_lines(section)} & set(known[section.name]):
                for layer in range(section.repeat):
                    weight = known[section.name][name]
                    sources, prefix = tensor_places(self.program, section, weight, layer, start.removeprefix(START))
                    for spelt, layout in sources.items():
                        module = f"{prefix}{spelt.removesuffix('.weight')}"
                        if len(layout.split()) == 2 and tensor_name(module, "A") in folder.tensors:
                            yield (section.name, name, layer), module, layout

    @property
    def adapted(self) -> Program:
        """The program with lines for all adapters, on the matmuls that any of them has."""
        sections = []
        for section in self.program.sections:
            names = frozenset(name for own, name, _ in self.places if own == section.name)
            wide = Adapters(self.rank * len(self.folders), names)
            sections.append(with_adapters(section, wide) if names else section)
        return replace(self.program, sections=tuple(sections))

    def reader(self, read: WeightReader) -> WeightReader:
        """The weights of `adapted`: those that `read` gives, and the adapters'."""
        plain, wide = weights_of(self.program), weights_of(self.adapted)
        dims = {section.name: section.dims for section in self.program.sections}

        def stacked(section: str, name: str, layer: int) -> Any:
            if name in plain[section]:
                return read(section, name, layer)
            base, _, half = name.rpartition("_")
            weight = wide[section][name]
            whole = numpy.zeros(weight.shape[1:], numpy.float32)
            names = tuple("l" if one == RANK.name else one for one in weight.array.names)
            for number, module, layout in self.places.get((section, base, layer), ()):
                folder, (rows, columns) = self.folders[number], layout.split()
                own, rank = folder.matrix(module, half.upper()), len(folder.matrix(module, "A"))
                where = slice(number * self.rank, number * self.rank + rank)
                turned = f"l {columns}" if half == "a" else f"{rows} l"
                sizes = dims[section] | {"l": rank}
                values = viewed(own, tensor_name(module, half.upper()), turned, names, sizes).astype(numpy.float32)
                if half == "a":
                    whole[..., where] = values
                else:
                    whole[where] = values * folder.scale(module, rank)
            return whole

        return stacked
