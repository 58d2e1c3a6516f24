"""A real Firefox for the tests of the page, driven by the protocol that it brings along (Marionette): JSON on a socket.

Playwright drives only a Firefox of its own build, which many machines cannot fetch; any Firefox of a distribution does
here. `FIREFOX=/path/to/firefox` names one where none is on the PATH. Where there is none, the tests are skipped.
"""

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.web.serving import free_port

NAMES = ("firefox-esr", "firefox")
UP = 60.0
"""Seconds that Firefox has to come up; it takes three on an idle machine."""
# Nothing but the page under test talks, and nothing moves.
SETTINGS = {
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.page": 0,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "toolkit.telemetry.enabled": False,
    "ui.prefersReducedMotion": 1,
}


def find_firefox() -> str | None:
    """The path of a Firefox on this machine: `FIREFOX`, then the PATH."""
    asked = os.environ.get("FIREFOX")
    names = [asked] if asked else NAMES
    return next((path for name in names if (path := shutil.which(name))), None)


class FoxPage:
    """One tab of a Firefox, with the few methods of a Playwright page that the tests need."""

    def __init__(self, port: int, process: "subprocess.Popen[bytes]") -> None:
        self.last = 0
        until = time.monotonic() + UP
        while True:
            try:
                own = socket.create_connection(("127.0.0.1", port), UP)
                break
            except OSError:
                if time.monotonic() > until or process.poll() is not None:
                    raise TimeoutError("Firefox did not come up.") from None
                time.sleep(0.1)
        self.own, self.wire = own, own.makefile("rwb")
        self._read()  # what it calls itself
        self.command("WebDriver:NewSession", {"capabilities": {}})

    def _read(self) -> Any:
        size = b""
        while (letter := self.wire.read(1)) != b":":
            size += letter
        return json.loads(self.wire.read(int(size)))

    def command(self, name: str, given: dict[str, Any]) -> Any:
        """What Firefox answers to a command."""
        self.last += 1
        body = json.dumps([0, self.last, name, given]).encode()
        self.wire.write(str(len(body)).encode() + b":" + body)
        self.wire.flush()
        _, _, error, result = self._read()
        if error:
            raise RuntimeError(f"{name}: {error.get('message', error)}")
        return result

    def close(self) -> None:
        """Leave it."""
        self.wire.close()
        self.own.close()

    def goto(self, address: str) -> None:
        """Open an address anew, though only its hash may differ."""
        self.command("WebDriver:Navigate", {"url": "about:blank"})
        self.command("WebDriver:Navigate", {"url": address})

    def evaluate(self, expression: str, given: Any = None) -> Any:
        """The value of a function or an expression, awaited."""
        script = f"const one = ({expression}); return typeof one === 'function' ? one(arguments[0]) : one;"
        return self._run(script, given)

    def run(self, script: str) -> None:
        """Run statements."""
        self._run(script, None)

    def _run(self, script: str, given: Any) -> Any:
        more = {"args": [given], "newSandbox": False, "sandbox": None}
        return self.command("WebDriver:ExecuteScript", {"script": script, **more})["value"]

    def complaints(self, address: str) -> list[str]:
        """What the console has of errors in files of this address."""
        self.command("Marionette:SetContext", {"value": "chrome"})
        found = self._run(
            "return Services.console.getMessageArray().filter((one) => one instanceof Ci.nsIScriptError"
            " && !(one.flags & Ci.nsIScriptError.warningFlag) && one.sourceName.startsWith(arguments[0])).map(String);",
            address,
        )
        self.command("Marionette:SetContext", {"value": "content"})
        return found

    def sized(self, width: int, height: int) -> None:
        """Give the page this size."""
        self.command("WebDriver:SetWindowRect", {"width": width, "height": height})
        own = self.evaluate("[innerWidth, innerHeight]")
        self.command("WebDriver:SetWindowRect", {"width": 2 * width - own[0], "height": 2 * height - own[1]})

    def picture(self, path: Path, full: bool = True) -> None:
        """Save what is drawn."""
        data = self.command("WebDriver:TakeScreenshot", {"full": full, "hash": False})["value"]
        path.write_bytes(base64.b64decode(data))

    @property
    def url(self) -> str:
        return self.evaluate("location.href")

    def wait_for_timeout(self, milliseconds: float) -> None:
        time.sleep(milliseconds / 1e3)

    def inner_text(self, selector: str) -> str:
        return self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")


@contextlib.contextmanager
def firefox(dark: bool = False) -> Iterator[FoxPage]:
    """A Firefox with an empty profile, headless."""
    path = find_firefox()
    assert path is not None
    port = free_port()
    theme = {"layout.css.prefers-color-scheme.content-override": 0 if dark else 1}
    own = SETTINGS | theme | {"marionette.port": port}
    with tempfile.TemporaryDirectory(prefix="dragonscale-firefox-", ignore_cleanup_errors=True) as folder:
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in own.items()]
        Path(folder, "user.js").write_text("\n".join(lines), encoding="utf-8")
        command = [
            path,
            "--headless",
            "--marionette",
            "--remote-allow-system-access",
            "--no-remote",
            "--profile",
            folder,
        ]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, env={**os.environ, "HOME": folder}, **quiet)
        try:
            with contextlib.closing(FoxPage(port, process)) as page:
                yield page
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
