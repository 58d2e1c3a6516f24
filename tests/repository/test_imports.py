"""Who imports whom, read from the source: no circles, not even through imports inside functions or for type checkers,
and imports inside functions only where something heavy stays unloaded."""

import ast
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "dragonscale"
HEAVY = (
    "dragonscale.runtime",
    "dragonscale.web",
    "dragonscale.evidence",
    "dragonscale.exports",
    "dragonscale.blocks.charts",
)
"""Rooms that a command may load only when it needs them."""
TABLES = (
    "dragonscale",
    "dragonscale.faces.cli",
    "dragonscale.faces.cli.table",
    "dragonscale.faces.commands",
    "dragonscale.web.views.why",
)
"""Modules and packages that load what they name on first use: the tables of commands, of public names, and of what
derives the numbers of each view."""
INSIDE_LEFT = {
    "commands.compare": 1,  # `train` with several stacks compares them, and comparisons load serving
    "commands.estimate": 1,
    "commands.explain": 5,
    "commands.foreign": 2,
    "commands.profile": 1,
    "commands.questions": 2,  # chips, which `--gpus 8` needs and `--help` does not
    "commands.serve": 2,
    "commands.train": 3,  # the verifier, and the reader of `--lengths`, which loads the simulator and serving
    "course": 7,
    "evidence": 2,
    "faces": 4,  # types of Python's functions, which editors alone ask for
    "models": 12,
    "web": 9,
}
"""Imports inside functions that are left, by room: no more may come."""


@cache
def modules() -> dict[str, Path]:
    """Every module by its dotted name."""
    named = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("dragonscale", *path.relative_to(PACKAGE).with_suffix("").parts)
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def imported(node: ast.AST) -> Iterator[str]:
    """The modules of this package that a statement imports; a name of a package is its module where it is one."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules())
    elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "dragonscale":
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            yield whole if whole in modules() else node.module


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """A node and every statement inside it; expressions, which hold no import, are not looked into."""
    yield node
    for bodies in ("body", "handlers", "orelse", "finalbody", "cases"):
        for child in getattr(node, bodies, ()):
            yield from statements(child)


@cache
def graph() -> dict[str, frozenset[str]]:
    """What each module imports, wherever in it that stands."""
    return {
        name: frozenset(target for node in statements(tree(name)) for target in imported(node)) - {name}
        for name in modules()
    }


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_text(encoding="utf-8"))


def way(start: str, end: str, arrows: dict[str, frozenset[str]]) -> list[str]:
    """The shortest way from a module to another; empty where there is none."""
    before, queue = {start: ""}, deque([start])
    while queue:
        here = queue.popleft()
        for there in sorted(arrows[here]):
            if there == end:
                steps = [end]
                while here:
                    steps.append(here)
                    here = before[here]
                return steps[::-1]
            if there not in before:
                before[there] = here
                queue.append(there)
    return []


def circles(arrows: dict[str, frozenset[str]]) -> list[list[str]]:
    """The shortest circle through each module that is in one, each circle once."""
    arrows = dict(arrows)
    while ends := [name for name, targets in arrows.items() if not targets & arrows.keys()]:
        for name in ends:  # a module that imports nothing that is left is in no circle
            del arrows[name]
    left = {name: targets & arrows.keys() for name, targets in arrows.items()}
    shortest = {frozenset(circle): circle for name in left if (circle := way(name, name, left))}
    return sorted(shortest.values(), key=len)


def test_a_circle_is_seen_and_shown_at_its_shortest() -> None:
    arrows = {"a": frozenset("bc"), "b": frozenset("c"), "c": frozenset("a"), "d": frozenset("a")}
    assert set(circles(arrows)[0]) == {"a", "c"}
    assert circles({"a": frozenset("b"), "b": frozenset()}) == []


def test_no_module_imports_itself_through_others() -> None:
    found = circles(graph())
    assert not found, "\n".join(" -> ".join(circle) for circle in found[:5])


def inside_functions(name: str) -> list[str]:
    """The modules of this package, but for heavy ones, that functions of a module import."""
    functions = [node for node in statements(tree(name)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {node for function in functions for node in statements(function)}
    return [target for node in inside for target in imported(node) if not target.startswith(HEAVY)]


def room(name: str) -> str:
    """The first word of a module's name, or two of an application's: `commands.train`, `web`."""
    words = name.split(".")[1:]
    return ".".join(words[: 2 if words[:1] == ["commands"] else 1])


def test_imports_inside_functions_are_few() -> None:
    counted: dict[str, int] = {}
    for name in modules():
        if name not in TABLES and name.rpartition(".")[0] not in TABLES[2:]:
            counted[room(name)] = counted.get(room(name), 0) + len(inside_functions(name))
    more = {name: count for name, count in counted.items() if count > INSIDE_LEFT.get(name, 0)}
    assert not more


def loaded_by(command: str) -> list[str]:
    """Our modules that a fresh process has loaded once it has answered a command."""
    script = (
        "import sys; from dragonscale.faces.cli import main\n"
        f"main({command.split()})\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return [name for name in answer.stderr.split() if name.startswith("dragonscale.")]


def test_a_question_loads_only_the_packages_that_it_is_about() -> None:
    training = loaded_by("train llama3-8b --on h100:8 --batch 64seq --seq 8192 --plan fsdp8 --alone")
    assert not [name for name in training if name.startswith(("dragonscale.exports", "dragonscale.serving"))]
    planners = ("dragonscale.training", "dragonscale.serving", "dragonscale.simulation", "dragonscale.plan")
    assert not [name for name in loaded_by("chips h100") if name.startswith(planners)]
