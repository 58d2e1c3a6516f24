"""Settings for the whole suite.

Property tests draw the same examples every time, so that a failure is the change's and not the dice's;
`HYPOTHESIS_PROFILE=explore make test` draws new ones, and `unshrunk` stops at the first that fails (`make mutants`).
No test has a deadline: machines are busy.
"""

import atexit
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import Phase, settings

# No test reads the user's own models or asks the network for one.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": os.path.join(os.path.dirname(__file__), "no-such-cache")}

# Modules stay compiled, whatever the environment says: tests start many processes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Nor the user's defaults and profiles.
os.environ["XDG_CONFIG_HOME"] = os.path.join(os.path.dirname(__file__), "no-such-folder")

# Nor the progress of somebody who learns.
os.environ["DRAGONSCALE_PROGRESS"] = os.path.join(tempfile.gettempdir(), f"dragonscale-learn-{os.getpid()}.json")

# Nor do they write to the user's caches; what is compiled is kept for one run, for all of its processes.
if "DRAGONSCALE_CACHE" not in os.environ:
    os.environ["DRAGONSCALE_CACHE"] = tempfile.mkdtemp(prefix="dragonscale-tests-")
    atexit.register(shutil.rmtree, os.environ["DRAGONSCALE_CACHE"], ignore_errors=True)

# These run inside the environments of other software (tools/software.py).
collect_ignore_glob = ["exports/software/*", "runtime/references/*"]

settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None, print_blob=True)
settings.register_profile("unshrunk", derandomize=True, deadline=None, phases=(Phase.explicit, Phase.generate))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collecting makes a million objects that live to the end. No garbage is looked for meanwhile, nor among them
    later: that was a tenth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of `slow.txt`."""
    lines = (Path(__file__).parent / "slow.txt").read_text(encoding="utf-8").splitlines()
    slow = {f"tests/{line}" for line in lines if line and not line.startswith("#")}
    for item in items:
        if item.nodeid in slow or item.nodeid.partition("[")[0] in slow:  # a case, or all cases of a test
            item.add_marker(pytest.mark.slow)
