"""How much code one command runs stays what a reader can follow."""

import json
import subprocess
import sys
from pathlib import Path

ONE_PLAN = "train llama3-8b --plan fsdp8 --alone --on h100:8 --batch 64seq --seq 8192"
# one plan judged by itself: 151 files and 945 functions, most of them for the model, the chip and the
# ledger of the step; lower these when it gets less. Eight files more than before are the verdict, the
# choice between one plan and a comparison, other spellings of flags and models, families of chips, and
# what the record holds of the MFU as software logs it and of earlier releases (with its published runs).
MAX_FILES = 152
MAX_FUNCTIONS = 950

MEASURE = """
import json, sys
from tools.touched_code import touched_by
touched = touched_by(sys.argv[1:])
print(json.dumps([sorted(touched.files), sorted(name for _, name in touched.functions)]))
"""


def test_one_plan_touches_little_code() -> None:
    """In a process of its own, since caches that other tests have filled hide what a command runs."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", MEASURE, *ONE_PLAN.split()]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    files, functions = json.loads(run.stdout)
    assert len(files) <= MAX_FILES
    assert len(functions) <= MAX_FUNCTIONS
    assert "training/cost/evaluation.py" in files
    # a plan by itself needs no search
    assert not {"training/search/search.py", "training/search/fast.py", "training/advice/remedies.py"} & {*files}
