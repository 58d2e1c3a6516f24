"""A model to serve: what it computes, where its weights are read from, and its text.

A model is a folder in Hugging Face's format (`config.json`, `*.safetensors`, `tokenizer.json`), or a name with weights
from elsewhere: another folder, checkpoints of our own trainer, or random ones made on the device, for benchmarks.
Weights are read one at a time when they are placed, so the host never holds the model: files are mapped, and a training
checkpoint is read weight by weight.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.listener import Listener
from dragonscale.models import hub, load_model
from dragonscale.models.program import Program
from dragonscale.models.transformer import Transformer
from dragonscale.runtime.checkpoint import tensor_reader
from dragonscale.runtime.numerics import Numerics, numerics_of
from dragonscale.runtime.parameters import WeightReader, random_reader, weights_of
from dragonscale.runtime.safetensors import SafeTensors
from dragonscale.runtime.server.text import ModelText, load_text, plain_text


@dataclass(frozen=True)
class LoadedModel:
    """A model that can be placed on devices: `read` gives its weights, `text` its tokenizer."""

    model: Transformer
    program: Program
    numerics: Numerics
    read: WeightReader
    text: ModelText


def open_model(
    name: str,
    weights: str = "",
    random: bool = False,
    tokenizer: str = "",
    listener: Listener | None = None,
    seed: int = 0,
) -> LoadedModel:
    """A model by its folder or name. `weights` and `tokenizer` are folders that replace its own. Nothing large is read
    yet; as it is, `listener` hears of every weight."""
    model, own = load_model(name), _folder(name)
    program = model.program()
    read = random_reader(program, seed=seed) if random else _reader(name, Path(weights) if weights else own, program)
    places = [Path(one) for one in ([tokenizer] if tokenizer else [weights, own]) if one]
    found = next((one for one in places if (one / "tokenizer.json").is_file()), None)
    known = found is not None or tokenizer or not random
    text = load_text(found or places[0]) if known else plain_text(program.sections[0].dims["v"])
    return LoadedModel(model, program, numerics_of(name), _heard(read, program, listener), text)


def _folder(name: str) -> Path | None:
    """The folder that a name leads to: the folder itself, that of a config, or what the Hub's cache has."""
    path = Path(name)
    if path.exists():
        return path if path.is_dir() else path.parent
    repo = hub.hub_name(name)
    return hub.cached(repo) if repo is not None else None


def _reader(name: str, folder: Path | None, program: Program) -> WeightReader:
    if folder is None:
        raise InputError(
            f"The model {shorten(name)} is known by name only; give its folder, a folder with --weights, or --random."
        )
    if not folder.is_dir():
        raise InputError(f"There is no folder {shorten(str(folder))} to read weights from.")
    if next(folder.glob("*.safetensors"), None) is None:
        from dragonscale.runtime.train.checkpoints import newest_checkpoint, trained_reader

        newest = newest_checkpoint(folder)
        if newest is not None:
            return trained_reader(newest, program)
    return tensor_reader(SafeTensors(folder), program)


def _heard(read: WeightReader, program: Program, listener: Listener | None) -> WeightReader:
    """The same, with word of how far it is."""
    if listener is None:
        return read
    total = sum(
        weight.shape[0] if weight.stacked else 1 for own in weights_of(program).values() for weight in own.values()
    )
    done = itertools.count(1)  # several threads may read

    def heard(section: str, name: str, layer: int) -> Any:
        listener.step(min(next(done), total), total)
        return read(section, name, layer)

    return heard
