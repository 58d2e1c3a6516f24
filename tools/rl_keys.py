"""The names that frameworks of reinforcement learning take, by their sources: `python -m tools.rl_keys NAME GIT_DIR`.

Of those that no package index has whole: NeMo-RL's configs have all its defaults, slime has a parser of flags beside
Megatron's and, with a prefix, SGLang's, whose tables we have. The others are in `tools.software`.
"""

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dragonscale.exports.keys import Key, KeyTable, dotted, key_file, load_keys

KEYS = Path(__file__).parent.parent / "src" / "dragonscale" / "exports" / "keys"
SOURCES = {
    "nemo-rl": (
        "NeMo-RL",
        "nemo_rl/package_info.py",
        [f"examples/configs/grpo_math_1B{kind}.yaml" for kind in ("", "_megatron")],
    ),
    "slime": ("slime", "setup.py", ["slime/utils/arguments.py"]),
}
TYPES = {bool: "bool", int: "int", float: "float", list: "list", dict: "json"}


def of_config(text: str) -> dict[str, Key]:
    """Every setting of a YAML file, by its dotted name."""
    found: dict[str, Key] = {}
    for name, value in dotted(yaml.safe_load(text)):
        plain = not (isinstance(value, str) and "${" in value) and not isinstance(value, list | dict)
        found[name] = Key(type=TYPES.get(type(value), "str"), default=value if plain else None)
    return found


def of_parser(text: str) -> dict[str, Key]:
    """Every flag that a file adds to a parser."""
    found: dict[str, Key] = {}
    for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
        if getattr(call.func, "attr", "") != "add_argument" and getattr(call.func, "id", "") != "reset_arg":
            continue
        words = {word.arg: word.value for word in call.keywords}
        action = getattr(words.get("action"), "value", "")
        kind = getattr(words.get("type"), "id", "str")
        default = getattr(words.get("default"), "value", None)
        row = Key(type="flag" if action in ("store_true", "store_false") else kind if kind in TYPES.values() else "str")
        plain = default if isinstance(default, str | int | float) else None
        for arg in call.args:
            if isinstance(arg, ast.Constant) and str(arg.value).startswith("--"):
                found[str(arg.value)] = msgspec.structs.replace(row, default=plain)
    return found


def table(name: str, repository: str) -> KeyTable:
    """All names of a framework at the newest commit of a repository."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", f"--git-dir={repository}", *words], check=True, capture_output=True, text=True
        ).stdout

    title, version, paths = SOURCES[name]
    read: Any = of_config if paths[0].endswith("yaml") else of_parser
    keys: dict[str, Key] = {}
    for path in paths:
        keys = read(git("show", f"HEAD:{path}")) | keys
    if name == "slime":
        engine = {f"--sglang{flag[1:]}": key for flag, key in load_keys("sglang").keys.items() if flag.startswith("--")}
        keys = load_keys("megatron").keys | {flag: Key(type=key.type) for flag, key in engine.items()} | keys
    commit = git("log", "-1", "--format=%h of %cs").strip()
    return KeyTable(title, numbered(git("show", f"HEAD:{version}")), f"{', '.join(paths)} at {commit}", keys)


def numbered(text: str) -> str:
    """The version that a file says."""
    rows = [row.split("=")[-1].strip(" ,\"'") for row in text.splitlines() if "=" in row]
    if "MAJOR" in text:
        return ".".join(rows[:3])
    if "version=" in text:
        return next(row.split("=")[1].strip(" ,\"'") for row in text.splitlines() if "version=" in row)
    return text.strip().splitlines()[0]


if __name__ == "__main__":
    (KEYS / f"{sys.argv[1]}.json").write_text(key_file(table(*sys.argv[1:])), encoding="utf-8")
