"""The answer to `dscale web`: the page, served until it is stopped."""

import webbrowser
from importlib.util import find_spec

from dragonscale.errors import InputError
from dragonscale.listener import Listener
from dragonscale.questions.web import WebQuestion


def ask(question: WebQuestion, listener: Listener) -> None:
    """Serve the page."""
    if any(find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise InputError("`dscale web` needs Starlette and uvicorn: pip install 'dragonscale[web]'.")
    import uvicorn

    from dragonscale.web.server.app import make_app

    listener.log(f"http://{question.host}:{question.port}/")
    if not question.no_browser:
        webbrowser.open(f"http://{question.host}:{question.port}/")
    uvicorn.run(make_app(), host=question.host, port=question.port, log_level="warning")
