"""The wheel of msgspec for Pyodide: its Python files from the sdist, its compiled extension, its licence; the same
bytes each time."""

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

TAG = "cp312-cp312-pyodide_2024_0_wasm32"
EXTENSION = "msgspec/_core.cpython-312-wasm32-emscripten.so"
_WHEN = (2026, 1, 1, 0, 0, 0)


def write_wheel(source: Path, extension: Path, folder: Path) -> Path:
    """Write `msgspec-VERSION-TAG.whl` into a folder; `source` is the unpacked sdist."""
    version = source.name.partition("-")[2]
    info = f"msgspec-{version}.dist-info"
    files = {f"msgspec/{path.name}": path.read_bytes() for path in sorted((source / "src" / "msgspec").glob("*.py*"))}
    files[EXTENSION] = extension.read_bytes()
    files[f"{info}/METADATA"] = (source / "PKG-INFO").read_bytes()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: dragonscale\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode()
    )
    files[f"{info}/licenses/LICENSE"] = (source / "LICENSE").read_bytes()
    rows = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    path = folder / f"msgspec-{version}-{TAG}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name, data in files.items():
            wheel.writestr(zipfile.ZipInfo(name, _WHEN), data, zipfile.ZIP_DEFLATED)
    return path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    made = write_wheel(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
    print(f"{made}: {made.stat().st_size} bytes, sha256 {hashlib.sha256(made.read_bytes()).hexdigest()}")
