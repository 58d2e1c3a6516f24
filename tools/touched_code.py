"""How much of the package a command runs: the files and functions that a reader who follows it has to open.

    python -m tools.touched_code train llama3-8b --plan fsdp8 --alone --on h100:8 --batch 64seq --seq 8192

Counted are the functions, methods and lambdas of `dragonscale` that are called, and the files that these are in; not
the bodies of modules and classes, which run on import, nor comprehensions. A cache that an earlier call filled hides
what it saves, so each command is measured in a process of its own.
"""

import inspect
import io
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PACKAGE = Path(__file__).parents[1] / "src" / "dragonscale"


@dataclass(frozen=True)
class TouchedCode:
    """The functions that a command ran, as `(file, name)`, with files relative to the package."""

    functions: frozenset[tuple[str, str]]

    @property
    def files(self) -> frozenset[str]:
        """The files that these functions are in."""
        return frozenset(file for file, _ in self.functions)

    def by_package(self) -> dict[str, tuple[int, int]]:
        """Files and functions of each package, those with most functions first."""
        functions = Counter(file.partition("/")[0] for file, _ in self.functions)
        files = Counter(file.partition("/")[0] for file in self.files)
        return {package: (files[package], count) for package, count in functions.most_common()}


def touched_by(arguments: Sequence[str]) -> TouchedCode:
    """What a command of `dscale` runs; its output is dropped."""
    from dragonscale.faces.cli import main

    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        sys.setprofile(note)
        try:
            main(arguments)
        finally:
            sys.setprofile(None)
    return TouchedCode(frozenset(function for code in codes if (function := _function(code))))


def _function(code: CodeType) -> tuple[str, str] | None:
    """The file and name of a function of the package; None for anything else."""
    path = Path(code.co_filename)
    # bodies of modules and classes have no optimized locals; comprehensions are code objects of their own before 3.12
    is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)
    comprehension = code.co_name in ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
    if not is_function or comprehension or not path.is_relative_to(PACKAGE):
        return None
    return str(path.relative_to(PACKAGE)), f"{code.co_qualname}:{code.co_firstlineno}"


if __name__ == "__main__":
    touched = touched_by(sys.argv[1:])
    print(f"{'package':14}{'files':>7}{'functions':>11}")
    for package, (files, functions) in touched.by_package().items():
        print(f"{package:14}{files:7}{functions:11}")
    print(f"{'all':14}{len(touched.files):7}{len(touched.functions):11}")
