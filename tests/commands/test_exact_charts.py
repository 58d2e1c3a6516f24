"""What charts hold: their words, marks and numbers, from small questions.

`outlines.json` has for each list of rows their number and, for each column of numbers, the first, the last and the
sum, to five digits. After a change that is meant, `python -m tests.commands.test_exact_charts` writes it anew.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import dragonscale as ds

OUTLINES = Path(__file__).with_name("outlines.json")
TRAIN = {"model": "llama3-8b", "on": "h100:8", "batch": "64seq", "seq": 8192}
ANSWERS: dict[str, Any] = {
    "train": lambda: ds.train(plan="fsdp8", **TRAIN),
    "serve": lambda: ds.serve("llama3-8b", on="h100:1", plan="tp1", prompt=1024, output=256),
    "simulate": lambda: ds.simulate("llama3-8b", on="h100:1", rate="4/s", requests=50),
    "compare": lambda: ds.compare("fsdp8", "tp8", **TRAIN),
    "roofline": lambda: ds.roofline("bf16[B,8192]@bf16[8192,28672]", on="v5e"),
    "collective": lambda: ds.collective("all_gather", "1MB", on="h100:16"),
    "shard": lambda: ds.shard("bf16[1024,8192]@bf16[8192,8192]", on="v5e:4x4"),
    "chips": ds.chips,
    "models": lambda: ds.model("llama3-8b"),
}


def outline(spec: dict[str, Any]) -> list[str]:
    """The titles of a specification, its marks and domains, and its rows of values summed up, in their order."""
    lines: list[str] = []

    def walk(name: str, part: Any) -> None:
        if name in ("text", "subtitle", "title") and isinstance(part, str):
            lines.append(f"{name}: {part}")
        elif name == "domain" and isinstance(part, list):
            lines.append(f"domain: {', '.join(f'{end:.5g}' if isinstance(end, float) else str(end) for end in part)}")
        elif name == "mark":
            lines.append(f"mark: {part if isinstance(part, str) else part['type']}")
        elif name == "values" and part and all(isinstance(row, dict) for row in part):
            lines.extend(summed(part))
        elif isinstance(part, dict):
            for key, below in part.items():
                walk(key, below)
        elif isinstance(part, list):
            for below in part:
                walk("", below)

    walk("", spec)
    return lines


def summed(rows: list[dict[str, Any]]) -> list[str]:
    """A line for each column of some rows."""
    lines = [f"rows: {len(rows)}"]
    for name in sorted(set().union(*rows)):
        cells = [row[name] for row in rows if name in row]
        if all(isinstance(cell, (int, float)) for cell in cells):
            first, last, total = (f"{number:.5g}" for number in (cells[0], cells[-1], sum(cells)))
            lines.append(f"  {name}: {first} to {last}, sum {total}")
        else:
            words = list(dict.fromkeys(map(str, cells)))
            lines.append(f"  {name}: {len(words)}, {words[0]} to {words[-1]}")
    return lines


def outlines(name: str) -> dict[str, list[str]]:
    """All the charts of an answer."""
    answer = ANSWERS[name]()
    # `scaling` searches every slice, which takes seconds
    return {kind: outline(answer.plot(kind).spec) for kind in answer.CHARTS if kind != "scaling"}


@pytest.mark.parametrize("name", ANSWERS)
def test_its_charts_hold_what_they_held(name: str) -> None:
    expected = json.loads(OUTLINES.read_text(encoding="utf-8"))[name]
    assert outlines(name) == expected


if __name__ == "__main__":
    OUTLINES.write_text(
        json.dumps({name: outlines(name) for name in ANSWERS}, indent=0, ensure_ascii=False) + "\n", encoding="utf-8"
    )
