"""Archives of the static edition: files picked out of the parts, as zips that the worker unpacks.

Where a Python 3.12 is at hand (the version inside Pyodide), the modules that a first answer loads are stored compiled:
the browser then starts in about two thirds of the time. The others are stored as text, which compresses to half the
size. Without a Python 3.12 all are, which runs the same.
"""

import functools
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from tools.static_edition.parts import fetch

Files = dict[str, bytes]

_WHEN = (2026, 1, 1, 0, 0, 0)  # the same files give the same bytes
_NUMPY = "lib/python3.12/site-packages/"
# What `import numpy` never loads: tests, compilers of Fortran, headers, types, and the transforms nobody here uses.
_NOT_OF_NUMPY = re.compile(
    r"/(tests|f2py|testing|fft|polynomial|_pyinstaller|include|doc|typing|distutils)/|/(core|char|rec|compat)/(?!__init__)"
    r"|\.(pyi|pxd|pyx|h|c|a|md|build|lib)$|_tests\.|_simd\.|lapack_lite|conftest\.py$|ctypeslib|matlib\.py$|_configtool"
)
# Modules that only attach docstrings to compiled functions: `import numpy` wants them, empty will do.
_ONLY_DOCS = ("numpy/_core/_add_newdocs.py", "numpy/_core/_add_newdocs_scalars.py")
_NOT_OF_SYMPY = re.compile(
    r"/tests/|/benchmarks/|^sympy/(testing|galgebra|parsing/(latex|autolev|c|fortran))/|\.(lark|g4|antlr)$"
)


def numpy_files() -> tuple[Files, Files]:
    """NumPy without what is never loaded; and `numpy.random`, which only simulations draw from."""
    with tarfile.open(fetch("numpy")) as outer:
        inner = next(member for member in outer if member.name.endswith(".tar.gz"))
        packed = outer.extractfile(inner)
        assert packed is not None
        every = _tar_files(packed.read())
    files = {name.removeprefix(_NUMPY): data for name, data in every.items() if name.startswith(f"{_NUMPY}numpy/")}
    files = {name: data for name, data in files.items() if not _NOT_OF_NUMPY.search(name)}
    files |= dict.fromkeys(_ONLY_DOCS, b"")
    random = {name: data for name, data in files.items() if name.startswith("numpy/random/")}
    return {name: data for name, data in files.items() if name not in random}, random


def sympy_files() -> Files:
    """SymPy and mpmath without their tests."""
    files = zip_files(fetch("sympy").read_bytes()) | zip_files(fetch("mpmath").read_bytes())
    return {name: data for name, data in files.items() if name.endswith(".py") and not _NOT_OF_SYMPY.search(name)}


def yaml_files() -> Files:
    """PyYAML's Python; without its C part it reads and writes the same."""
    every = _tar_files(fetch("pyyaml").read_bytes())
    found = {name.partition("/lib/")[2]: data for name, data in every.items() if "/lib/yaml/" in name}
    return {name: data for name, data in found.items() if name.endswith(".py")}


def pyodide_files() -> Files:
    """The files of Pyodide's core."""
    names = ("pyodide.mjs", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
    every = _tar_files(fetch("pyodide").read_bytes())
    return {name: every[f"package/{name}"] for name in names}


def licence_text(name: str, file: str) -> str:
    """The text of a licence inside a part."""
    data = fetch(name).read_bytes()
    if name == "numpy":
        data = next(packed for inner, packed in _tar_files(data).items() if inner.endswith(".tar.gz"))
    files = zip_files(data) if data[:2] == b"PK" else _tar_files(data)
    return files[file].decode()


def zip_files(data: bytes) -> Files:
    """The files of a zip or a wheel."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def _tar_files(data: bytes) -> Files:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        opened = ((member.name, archive.extractfile(member)) for member in archive if member.isfile())
        return {name.removeprefix("./"): file.read() for name, file in opened if file is not None}


def packed(files: Mapping[str, bytes], soon: Collection[str] = ()) -> bytes:
    """A zip of the files, in order of their names; the modules named in `soon` compiled where that can be done."""
    out = io.BytesIO()
    compiler = _compiler()
    modules = {name: data for name, data in files.items() if name.endswith(".py") and module_name(name) in soon}
    made = compiler(modules) if compiler and modules else modules
    kept = {name: data for name, data in files.items() if name not in modules} | made
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in sorted(kept.items()):
            archive.writestr(zipfile.ZipInfo(name, _WHEN), data, zipfile.ZIP_DEFLATED, 9)
    return out.getvalue()


def module_name(path: str) -> str:
    """The module in a file.

    >>> module_name("numpy/lib/__init__.py"), module_name("json/decoder.py")
    ('numpy.lib', 'json.decoder')
    """
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


_INSTALLED = (".pyenv/versions/3.12.*/bin/python3.12", ".local/share/uv/python/cpython-3.12*/bin/python3.12")
"""Where pyenv and uv keep the versions of Python that are not on the PATH."""


@functools.cache
def _compiler() -> Callable[[Mapping[str, bytes]], Files] | None:
    """What compiles modules for Pyodide's Python: all releases of 3.12 have the same bytecode."""
    for name in (
        sys.executable,
        os.environ.get("PYTHON312", "python3.12"),
        "/usr/bin/python3.12",
        "/usr/local/bin/python3.12",
        *(str(path) for place in _INSTALLED for path in sorted(Path.home().glob(place))),
    ):
        path = shutil.which(name)
        told = path and subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        if path and told and told.startswith("Python 3.12."):
            return functools.partial(_compile_with, path)
    return None


def _compile_with(python: str, files: Mapping[str, bytes]) -> Files:
    with tempfile.TemporaryDirectory(prefix="dragonscale-static-") as folder:
        for name, data in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        # `-b`: beside the source, where a module without one is looked for; unchecked: there is no source to check
        # against.
        # `-s`: paths in tracebacks begin at the package.
        command = [
            python,
            "-m",
            "compileall",
            "-q",
            "-b",
            "-s",
            folder,
            "--invalidation-mode",
            "unchecked-hash",
            folder,
        ]
        subprocess.run(command, check=False, capture_output=True)
        made = {name: Path(folder, f"{name}c") for name in files}
        return {
            f"{name}c" if path.exists() else name: path.read_bytes() if path.exists() else files[name]
            for name, path in made.items()
        }
