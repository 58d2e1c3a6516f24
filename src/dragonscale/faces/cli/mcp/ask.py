"""The answer to `dscale mcp`: a server, for as long as its client stays."""

from importlib.util import find_spec

from dragonscale.app.questions.mcp import McpQuestion
from dragonscale.errors import InputError
from dragonscale.faces.cli.mcp.server import serve
from dragonscale.listener import Listener


def ask(question: McpQuestion, listener: Listener) -> None:  # noqa: ARG001  there is nothing to ask
    """Serve on stdin and stdout."""
    if not has_sdk():
        raise InputError("`dscale mcp` needs the MCP SDK, version 2: pip install 'dragonscale[mcp]'.")
    serve()


def has_sdk() -> bool:
    """Whether the SDK is there, in the version whose types are a package of their own."""
    return all(find_spec(name) is not None for name in ("mcp", "mcp_types", "anyio"))
