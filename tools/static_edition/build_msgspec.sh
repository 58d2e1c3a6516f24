#!/usr/bin/env bash
# msgspec's one C extension compiled to WebAssembly for Pyodide 0.27 (Python 3.12), as a wheel in vendor/.
#
#   tools/static_edition/build_msgspec.sh [FOLDER WITH PYTHON 3.12's HEADERS]
#
# Needs: emcc (made with Debian 13's `apt install emscripten`, 3.1.69; Emscripten's own 3.1.58 is what Pyodide is made with), the
# headers of any Python 3.12 (only pyconfig.h differs between machines: it is written from Pyodide's own values), and a network once.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${BUILD_PYTHON:-.venv/bin/python}  # not PYTHON, which emcc reads too
headers=${1:-$(python3.12 -c 'import sysconfig; print(sysconfig.get_path("include"))')}
version=0.22.0
sha256=0a13624a4969159fe35d8c2a3d377b2b61bbd8585e327440d5e52725affcce38
url=https://files.pythonhosted.org/packages/d0/e6/6dcf9306ff3c5e486578f3bf29ed11dfbdbbc2a8bf0caf7e07d392887fda/msgspec-$version.tar.gz
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -c 'import sys, urllib.request as u; open(sys.argv[2], "wb").write(u.urlopen(sys.argv[1]).read())' "$url" "$work/msgspec.tar.gz"
echo "$sha256  $work/msgspec.tar.gz" | sha256sum --check --quiet
tar -xzf "$work/msgspec.tar.gz" -C "$work"
cp -r "$headers" "$work/include"
"$python" -m tools.static_edition.pyconfig "$work/include/pyconfig.h"

# A side module: position-independent code that Pyodide's main module links when Python imports it.
source=$work/msgspec-$version
emcc -O2 -g0 -DNDEBUG -fPIC -I"$work/include" -c "$source/src/msgspec/_core.c" -o "$work/core.o"
emcc -O2 -g0 -sSIDE_MODULE=2 -sEXPORTED_FUNCTIONS=_PyInit__core -sWASM_BIGINT "$work/core.o" -o "$work/_core.so"
"$python" -m tools.static_edition.msgspec_wheel "$source" "$work/_core.so" tools/static_edition/vendor
