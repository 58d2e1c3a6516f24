"""`pyconfig.h` of Pyodide's Python, written from what that Python says about itself.

A C extension is compiled against Python's headers. All but one of them are the same on every machine; `pyconfig.h`
holds what the `configure` of one build found: sizes of types, functions that are there. Pyodide's npm package has no
headers, but its standard library carries every value of that file in `_sysconfigdata_*.py`, so the file can be had from
there:

    python -m tools.static_edition.pyconfig pyconfig.h
"""

import io
import re
import sys
import tarfile
import zipfile
from pathlib import Path

from tools.static_edition.parts import fetch

_CHECKED = re.compile(
    r"HAVE_|SIZEOF_|ALIGNOF_|WITH_|(DOUBLE_IS|STDC_HEADERS|PYLONG_BITS|PTHREAD_KEY_T_IS|SYS_SELECT_WITH)"
)


def pyconfig(stdlib: bytes) -> str:
    """The header, from the bytes of `python_stdlib.zip`."""
    with zipfile.ZipFile(io.BytesIO(stdlib)) as archive:
        name = next(one for one in archive.namelist() if one.startswith("_sysconfigdata_"))
        text = archive.read(name).decode()
    # What `configure` did not find is 0 there and must stay undefined.
    found = {
        key: value for key, value in re.findall(r"'(\w+)': (-?\d+)[,}]", text) if value != "0" and _CHECKED.match(key)
    }
    lines = [f"#define {key} {value}" for key, value in sorted(found.items())]
    return "\n".join(["#ifndef Py_PYCONFIG_H", "#define Py_PYCONFIG_H", *lines, "#endif", ""])


def main() -> None:
    with tarfile.open(fetch("pyodide")) as archive:
        member = archive.extractfile("package/python_stdlib.zip")
        assert member is not None
        Path(sys.argv[1]).write_text(pyconfig(member.read()), encoding="utf-8")


if __name__ == "__main__":
    main()
