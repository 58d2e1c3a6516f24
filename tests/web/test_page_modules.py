"""The page's own modules: what node says of those that need no page."""

import re
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


def test_a_flag_is_called_as_its_field_is():
    page = HERE.parents[1] / "src" / "dragonscale" / "web" / "page" / "js"
    flags = (page / "flags.js").read_text(encoding="utf-8")
    forms = "".join(
        path.read_text(encoding="utf-8") for path in [page / "config.js", *(page / "tabs").glob("*_form.js")]
    )
    labels = re.findall(r': "([A-Z][^"]+)"', flags)
    assert len(labels) > 25
    assert [label for label in labels if f'"{label}"' not in forms] == []
