"""Models by name, path or object: one function for everything that can be called a model.

- a preset: `llama3-70b`
- `org/name` of the Hugging Face Hub, or its address: the local cache, the preset of that name, or
  its `config.json` fetched
- a folder or a file: `config.json`, a user's TOML, `.gguf`, `.safetensors` (its folder's config.json
  says what it is; formats and bytes are those of the files)
- a `Transformer`, unchanged

After a question mark come fields to assume and the family to read it as (`assumed.py`).

>>> load_model("meta-llama/Meta-Llama-3-70B-Instruct").notes
("'meta-llama/Meta-Llama-3-70B-Instruct' is read as the preset llama3-70b.",)
>>> load_model("llama3-8b?num_hidden_layers=16").n_layers
16
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragonscale.errors import InputError, shorten
from dragonscale.models import hub
from dragonscale.models.assumed import Asked, assumed_fields, read_asked
from dragonscale.models.catalogue import is_preset, preset, preset_model, preset_of_size, toml_fields, toml_model
from dragonscale.models.preset_files import reading
from dragonscale.pasted import may_name_files

if TYPE_CHECKING:
    from dragonscale.models.transformer import Transformer

MAX_PATH = 4000
"""Bytes of the longest path that operating systems accept; a longer text is a name."""


def load_model(
    model: "str | Path | Transformer", assume: Mapping[str, Any] | None = None, family: str = ""
) -> "Transformer":
    """The model that a name, a path or an object stands for. See the module's examples."""
    if not isinstance(model, str | Path):
        return _as_it_is(model, assume, family)
    request = _asked(model)
    request = Asked(request.text, request.assume | dict(assume or {}), family or request.family)
    if not request.text.strip():
        raise InputError("The model's name is empty; write a preset such as 'llama3-70b' or a path.")
    return _from_path(request) or _from_hub(request) or _of_size(request) or _from_preset(request, request.text)


def _of_size(request: Asked) -> "Transformer | None":
    """A preset for a number of parameters (`8b`), which says that it stands for it; None for other names."""
    name = preset_of_size(request.text)
    if not name:
        return None
    model = preset_model(name, request.assume, request.family)
    note = (
        f"{request.text.strip()} is taken as {name}, a dense preset of that size; `dscale estimate --params "
        f"{request.text.strip()}` counts without an architecture."
    )
    return replace(_named(model, request), notes=(*model.notes, note))


def model_fields(model: str | Path) -> Mapping[str, Any]:
    """The fields of the config of a name or a path, with those that are assumed."""
    request = _asked(model)
    fields = assumed_fields(_fields(request.text), request.assume)
    if request.family:
        return {**fields, "model_type": request.family}
    return fields


def _fields(text: str) -> dict[str, Any]:
    from dragonscale.models.checkpoints.load import folder_fields, gguf_fields
    from dragonscale.models.huggingface.load import read_config

    path = Path(text)
    ending = path.suffix.lower() if may_name_files() else ""
    if ending == ".toml":
        return toml_fields(path)
    if ending == ".gguf":
        return gguf_fields(path)
    if _exists(text) and not path.is_dir() and ending in (".safetensors", ".json"):
        is_checkpoint = ending == ".safetensors" or text.endswith(".safetensors.index.json")
        return read_config(path.parent if is_checkpoint else path)
    if _exists(text) and path.is_dir():
        return folder_fields(path)
    if _exists(text) and not is_preset(text):
        return read_config(path)
    name = hub.hub_name(text)
    if name is None:
        return preset(text)
    folder = hub.cached(name)
    if folder is not None:
        return folder_fields(folder)
    if is_preset(name.repo):
        return preset(text)
    return read_config(hub.fetch_config(name))


def _as_it_is(model: Any, assume: Mapping[str, Any] | None, family: str) -> "Transformer":
    from dragonscale.models.transformer import Transformer

    if not isinstance(model, Transformer):
        raise InputError(f"A model is a name, a path or a Transformer, not {shorten(model)}.")
    if assume or family:
        raise InputError("--assume and --as are about a config; a Transformer has none.")
    return model


def _asked(model: str | Path) -> Asked:
    """The name or path, and what is assumed after a question mark; a file's name may have a question mark in it."""
    text = str(model)
    if _exists(text):
        return Asked(text)
    return read_asked(text)


def _exists(text: str) -> bool:
    try:
        return may_name_files() and len(text) < MAX_PATH and Path(text).exists()
    except (OSError, ValueError):
        return False


def _from_path(request: Asked) -> "Transformer | None":
    """A file or a folder, or None where the text is a name."""
    if len(request.text) >= MAX_PATH or "\0" in request.text:
        return None
    path = Path(request.text)
    ending = path.suffix.lower()
    if not may_name_files():
        if ending in (".toml", ".json", ".gguf", ".safetensors") or path.is_absolute() or ".." in path.parts:
            raise InputError(
                f"The model {shorten(request.text)} looks like a file; name a preset, or org/name of the Hub."
            )
        return None
    if ending == ".toml":
        return toml_model(path, request.assume, request.family)
    if ending in (".gguf", ".safetensors") or request.text.endswith(".safetensors.index.json"):
        from dragonscale.models.checkpoints.load import load_checkpoint

        return load_checkpoint(path, request.assume, request.family)
    try:
        folder, file = path.is_dir(), path.exists()
    except OSError:
        return None
    if folder:
        from dragonscale.models.checkpoints.load import load_folder

        return load_folder(path, request.assume, request.family)
    if ending == ".json" or (file and not is_preset(request.text)):
        from dragonscale.models.huggingface import load_config

        return load_config(path, "", request.assume, request.family)
    return None


def _from_hub(request: Asked) -> "Transformer | None":
    """A repository of the Hub: from the local cache, else the preset of its name, else its config from the Hub; None
    where the text is no such name."""
    name = hub.hub_name(request.text)
    if name is None:
        return None
    folder = hub.cached(name)
    if folder is not None:
        from dragonscale.models.checkpoints.load import load_folder

        return load_folder(folder, request.assume, request.family, name.repo)
    if is_preset(name.repo):
        return _from_preset(request, name.repo)
    from dragonscale.models.huggingface import load_config

    return load_config(hub.fetch_config(name), name.repo, request.assume, request.family)


def _from_preset(request: Asked, name: str) -> "Transformer":
    """The preset that a name stands for, with a note on how the name was read."""
    model = preset_model(name, request.assume, request.family)
    note = _reading_note(name, model)
    if note:
        model = replace(model, notes=(note, *model.notes))
    return _named(model, request)


def _reading_note(name: str, model: "Transformer") -> str:
    """What a name was read as; empty for another spelling of a preset's own."""
    target = reading(name)
    if target is None:
        return ""
    read = f"{shorten(name)} is read as the preset {target.entry.name}"
    if model.name == name.strip() != target.entry.name:  # the name says the format too
        dtypes = " and ".join(sorted({*model.weight_dtypes.values()}))
        read += f" with weights in {dtypes}, as such checkpoints are published"
    elif "/" in name:
        read += _other_format(name, model)
    elif not target.what:
        return ""
    return f"{read} ({target.what})." if target.what else f"{read}."


def _other_format(repo: str, model: "Transformer") -> str:
    """A note where a repository's name promises another format than the preset's; empty otherwise."""
    format_ = re.search(r"fp8|nvfp4|mxfp4|fp4|awq|gptq|int4|int8|w4a16|w8a8", repo.lower())
    if format_ is None or format_[0] in (model.dtype, *model.weight_dtypes.values()):
        return ""
    named = f"the {format_[0]} that the name says"
    return f", whose weights are in {model.dtype} and not in {named}: its config.json would tell"


def _named(model: "Transformer", request: Asked) -> "Transformer":
    """The model with the fields that were changed in its name: it is not the preset any more."""
    changes = [f"{key}={value}" for key, value in request.assume.items()]
    if request.family:
        changes.append(f"as={request.family}")
    if not changes:
        return model
    from dragonscale.models.names import safe_name

    return replace(model, name=safe_name(f"{model.name}?{'&'.join(changes)}"))
