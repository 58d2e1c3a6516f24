"""The page's own modules: what node says of those that need no page."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed.")
def test_modules_that_need_no_page():
    tests = sorted(map(str, (HERE / "js").glob("*.test.mjs")))
    ran = subprocess.run(["node", "--test", *tests], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout[-4000:]
