"""Draw random bugs for `python -m tools.mutants`, with the operators of Cosmic Ray.

    python -m tools.draw_mutants --count 120 --seed 1 --out mutants.json [--packages training serving ...]

A position in the source is drawn first and then one of the operators that change it, so that arithmetic, for which
there are eleven operators, counts no more than a comparison. Annotations, docstrings and decorators are left alone:
they change no behaviour, or all of it at once. Cosmic Ray is no dependency of the project; `make mutants` installs it
beside the environment.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "dragonscale"
PLANNERS = ("physics", "plan", "models", "training", "serving", "simulation", "commands")
EXCLUDED = ("RemoveDecorator", "VariableReplacer", "VariableInserter", "NoOp")
"""Operators that break every call of a function at once, or need arguments."""


def operators() -> dict[str, Any]:
    """The operators by name, without their provider's."""
    found = {name.rpartition("/")[2]: name for name in operator_names()}
    return {name: get_operator(full)() for name, full in found.items() if name not in EXCLUDED}


def behaviour(text: str) -> str:
    """A module's syntax tree without annotations and docstrings, as text to compare."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return ast.dump(tree)


def mutations_of(path: Path, all_operators: dict[str, Any]) -> dict[tuple[int, int], list[tuple[str, int]]]:
    """For each position (line, column) in a file, the operators that change it, each with its occurrence there."""
    nodes = list(ast_nodes(get_ast(path.read_text(encoding="utf-8"))))
    positions: dict[tuple[int, int], list[tuple[str, int]]] = defaultdict(list)
    for name, operator in all_operators.items():
        starts = (start for node in nodes for start, _ in operator.mutation_positions(node))
        for occurrence, start in enumerate(starts):
            positions[start].append((name, occurrence))
    return positions


def changed_lines(before: str, after: str) -> tuple[int, list[str], list[str]]:
    """The first line that differs (from 1), and the lines from there to the last one that differs, in both texts."""
    old, new = before.splitlines(), after.splitlines()
    first = next(index for index, (left, right) in enumerate(zip(old, new, strict=False)) if left != right)
    same_after = 0
    while old[-1 - same_after] == new[-1 - same_after] and same_after < min(len(old), len(new)) - first - 1:
        same_after += 1
    return first + 1, old[first : len(old) - same_after], new[first : len(new) - same_after]


def draw(packages: list[str], count: int, seed: int) -> Iterator[dict[str, Any]]:
    """So many mutants of some packages, as `tools.mutants` reads them."""
    chance, all_operators = random.Random(seed), operators()
    paths = sorted(path for package in packages for path in (PACKAGE / package).rglob("*.py"))
    by_path = {path: mutations_of(path, all_operators) for path in paths}
    places = [(path, position) for path in paths for position in sorted(by_path[path])]
    chance.shuffle(places)
    drawn = 0
    for path, position in places:
        if drawn == count:
            return
        name, occurrence = chance.choice(sorted(by_path[path][position]))
        text = path.read_text(encoding="utf-8")
        mutated = mutate_code(text, all_operators[name], occurrence)
        try:
            if mutated is None or behaviour(mutated) == behaviour(text):
                continue
        except SyntaxError:  # an operator that fits no Python, such as `not` before a starred argument
            continue
        line, before, after = changed_lines(text, mutated)
        drawn += 1
        yield {
            "file": str(path.relative_to(ROOT / "src")),
            "operator": name,
            "line": line,
            "before": before,
            "after": after,
        }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.draw_mutants", description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--packages", nargs="+", default=list(PLANNERS), help="folders of src/dragonscale")
    parser.add_argument("--out", type=Path, required=True)
    flags = parser.parse_args()
    mutants = list(draw(flags.packages, flags.count, flags.seed))
    record = {"seed": flags.seed, "packages": flags.packages, "mutants": mutants}
    flags.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"{len(mutants)} mutants of {', '.join(flags.packages)} with seed {flags.seed} in {flags.out}")


if __name__ == "__main__":
    main()
