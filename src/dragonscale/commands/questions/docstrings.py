"""Docstrings below names, as editors show them: Python drops them, so they are read from the source."""

import ast
import functools
import inspect
import itertools
import sys


@functools.cache
def docstrings(module: str) -> dict[str, str]:
    """The docstrings below names of a module and of its classes (`Class.name`), on one line each."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:  # an installation without sources: flags work, and help has no words for them
        return {}
    texts: dict[str, str] = {}
    for scope in (tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))):
        prefix = f"{scope.name}." if isinstance(scope, ast.ClassDef) else ""
        # a string right below an assignment is its docstring
        for statement, below in itertools.pairwise(scope.body):
            match statement, below:
                case (
                    ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    texts[prefix + name] = " ".join(text.split())
    return texts


def constant_docstring(constant: object) -> str:
    """The docstring of a constant of a module of questions."""
    package = __name__.rpartition(".")[0]
    for module in [name for name in sys.modules if name.startswith(f"{package}.")]:
        for name, value in sys.modules[module].__dict__.items():
            if value is constant and (text := docstrings(module).get(name)):
                return text
    return ""
