"""The notebooks of examples/ run: cell by cell in this process, and, slowly, in a kernel of their own."""

import ast
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tools.refresh_docs import ROOT

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
named = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path: Path) -> list[str]:
    """The code of a notebook."""
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def shown(value: Any) -> str:
    """What a notebook would show for the last expression of a cell."""
    bundle = getattr(value, "_repr_mimebundle_", None)
    if bundle is not None:
        found = bundle()
        return str(found.get("image/svg+xml") or found["application/vnd.vegalite.v5+json"])
    page = getattr(value, "_repr_html_", None)
    return page() if page is not None else repr(value)


def run_cell(code: str, names: dict[str, Any]) -> Any:
    """Run a cell; its value is that of its last expression, as in a notebook."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 5


@named
def test_a_notebook_is_small_and_has_no_outputs(path: Path) -> None:
    import nbformat

    nbformat.validate(nbformat.read(path, as_version=4))
    assert path.stat().st_size < 20_000
    for cell in json.loads(path.read_text())["cells"]:
        assert cell["id"]
        assert cell["cell_type"] == "markdown" or (cell["outputs"], cell["execution_count"]) == ([], None)


@named
def test_cells_run_and_show_something(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    begun = time.process_time()
    values = [run_cell(code, names) for code in cells(path)]
    assert all(shown(value) for value in values)
    assert sum(value is not None for value in values) >= len(values) - 1  # all but the imports show an answer
    assert time.process_time() - begun < 60
    capsys.readouterr()


@named
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the kernel's own libraries
def test_a_kernel_runs_the_notebook(path: Path, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    kinds = {kind for cell in notebook.cells for one in cell.get("outputs", []) for kind in one.get("data", {})}
    assert {"text/html", "image/svg+xml"} <= kinds
