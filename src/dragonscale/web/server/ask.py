"""The answer to `dscale web`: the page, served until it is stopped."""

import asyncio
import os
import sys
import webbrowser
from importlib.util import find_spec

from dragonscale.commands.questions.faces import WebQuestion
from dragonscale.errors import InputError
from dragonscale.installing import install_hint
from dragonscale.listener import Listener
from dragonscale.stderr_relay import StderrRelay


def ask(question: WebQuestion, listener: Listener) -> None:
    """Serve the page."""
    if any(find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise InputError(f"`dscale web` needs Starlette and uvicorn: {install_hint('web')}")
    from dragonscale.web.server.page_serving import listen, serve_page
    from dragonscale.web.server.settings import PageSettings, default_workers

    if question.workers is not None and not 1 <= question.workers <= 256:
        raise InputError(f"--workers is {question.workers}; it takes 1 to 256.")
    names = tuple(name.strip().lower() for name in question.allow_host.split(",") if name.strip())
    settings = PageSettings(
        host=question.host,
        port=question.port,
        names=names,
        proxy=question.proxy,
        offline=question.offline,
        workers=question.workers or default_workers(),
        log=bool(question.verbose),
    )
    with listen(settings) as listening:
        address = url_of(settings.host, listening.getsockname()[1])
        listener.log(f"The page is at {address} (Ctrl-C stops it); {settings.workers} workers are starting …")
        if not settings.loopback:
            listener.log(f"Warning: everybody who can reach {settings.host} can use this server.")

        def ready() -> None:
            listener.log("Ready.")
            if not question.no_browser and has_display():
                webbrowser.open(address)

        with StderrRelay():
            asyncio.run(serve_page(settings, listening, ready))
    listener.log("Stopped.")


def url_of(host: str, port: int) -> str:
    """The address to open.

    >>> url_of("127.0.0.1", 80), url_of("::1", 8642), url_of("0.0.0.0", 8642)
    ('http://127.0.0.1:80/', 'http://[::1]:8642/', 'http://127.0.0.1:8642/')
    """
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def has_display() -> bool:
    """Whether a browser could be seen: on Linux, where a display is set."""
    if sys.platform != "linux" or "BROWSER" in os.environ:
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"))
