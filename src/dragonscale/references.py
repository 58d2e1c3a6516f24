"""Models and chips of a user's own, as a plan file names them.

A preset is named by its name. A user's own model or chip is a path, typed where a command was run;
the plan file may be read from another folder, or be moved together with what it names. So a path is
kept relative to the plan file where it lies beside or below it, and absolute otherwise, and a
relative path is looked for beside the plan file first.
"""

import os
import re
from pathlib import Path

_ENDINGS = (".toml", ".json", ".gguf")


def kept(name: str, plan_file: str | Path) -> str:
    """A model or a slice as a plan file should name it.

    >>> kept("llama3-8b", "plan.toml"), kept("h100:8", "plan.toml")
    ('llama3-8b', 'h100:8')
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "mine.toml").write_text("")
    ...     kept(f"{folder}/mine.toml:8", f"{folder}/plan.toml")
    './mine.toml:8'
    """
    path, topology = _split(name)
    if not _is_path(path):
        return name
    whole, folder = os.path.realpath(path), _folder(plan_file)
    if os.path.commonpath([whole, folder]) == folder:
        return os.path.join(".", os.path.relpath(whole, folder)) + topology
    return whole + topology


def found(name: str, plan_file: str | Path) -> str:
    """The same, as a command that reads the plan file should take it.

    >>> found("llama3-8b", "plans/plan.toml")
    'llama3-8b'
    """
    path, topology = _split(name)
    if not path or os.path.isabs(path) or len(path) > 4000 or "\0" in path:
        return name
    beside = os.path.normpath(os.path.join(_folder(plan_file), path))
    return beside + topology if _is_path(path, beside) else name


def _folder(plan_file: str | Path) -> str:
    return os.path.dirname(os.path.realpath(plan_file))


def _split(name: str) -> tuple[str, str]:
    """The path of a chip's file and the topology after it; a model is all path."""
    match = re.fullmatch(r"(.+\.toml)(:[^/]*)", name)
    return (match[1], match[2]) if match else (name, "")


def _is_path(written: str, place: str = "") -> bool:
    """Whether something written stands for a file or a folder that exists. A bare word is a preset,
    unless it is a folder."""
    if not written or len(written) > 4000 or "\0" in written:
        return False
    place = place or written
    named = written.lower().endswith(_ENDINGS) or "/" in written or os.sep in written
    return os.path.isdir(place) or (named and os.path.exists(place))
