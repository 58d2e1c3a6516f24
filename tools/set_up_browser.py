"""A Chromium for the tests of the page, where the machine has none.

As root on Debian or Ubuntu it comes from the system's packages, elsewhere from Playwright's own download. Neither is
needed for anything else: where both fail, the reason is told, the tests of the page are skipped with it, and the rest
runs.
"""

import os
import shutil
import subprocess
import sys

from tests.web.browser import find_browser

PACKAGES = ("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "chromium")
DOWNLOAD = (sys.executable, "-m", "playwright", "install", "--only-shell", "chromium")
LONGEST = 400
"""Seconds that each way may take."""


def ways() -> list[tuple[tuple[str, ...], ...]]:
    """What can be tried here, as commands that follow one another."""
    system = ((("apt-get", "update", "--quiet"), PACKAGES),) if shutil.which("apt-get") and os.geteuid() == 0 else ()
    return [*system, (DOWNLOAD,)]


def fetched(commands: tuple[tuple[str, ...], ...]) -> str:
    """Run the commands of one way; the reason where it fails, or nothing."""
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in commands:
        try:
            ended = subprocess.run(command, env=quiet, timeout=LONGEST, capture_output=True, text=True, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{command[0]}: {error}"
        if ended.returncode:
            return (
                (ended.stderr or ended.stdout).strip().splitlines()[-1:][0]
                if ended.stderr or ended.stdout
                else command[0]
            )
    return "" if find_browser() else "no Chromium is there afterwards"


def main() -> None:
    """Get a browser where there is none; never fail."""
    if find_browser():
        return
    for commands in ways():
        reason = fetched(commands)
        if not reason:
            print(f"Chromium for the tests of the page: {find_browser()}")
            return
        print(f"No Chromium by `{commands[-1][0]}` ({reason[:160]}).", file=sys.stderr)
    print("The tests of the page are skipped; CHROMIUM=/path/to/chromium names one.", file=sys.stderr)


if __name__ == "__main__":
    main()
