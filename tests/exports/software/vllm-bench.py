"""The parser of `vllm bench serve`: see vllm.py, which has it."""

import runpy
import sys
from pathlib import Path

sys.argv[1] = {"keys": "bench-keys"}.get(sys.argv[1], sys.argv[1])
runpy.run_path(str(Path(__file__).with_name("vllm.py")), run_name="__main__")
