"""The server: what the protocol asks, answered by the tools. This is the only module that needs the SDK, and only where
it serves.

Answers are worked out one after another in a thread, so that the server stays awake while one is: it reports how far it
is, and hears that it is no longer wanted.
"""

import functools
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragonscale.commands.questions.faces import McpQuestion
from dragonscale.errors import InputError
from dragonscale.faces.cli.mcp.results import answered
from dragonscale.faces.cli.mcp.tools import tools
from dragonscale.installing import install_hint
from dragonscale.listener import Listener

if TYPE_CHECKING:
    import mcp_types
    from mcp.server import Server, ServerRequestContext

OFTEN = 0.5
"""Seconds between two words on how far an answer is."""


def ask(question: McpQuestion, listener: Listener) -> None:  # noqa: ARG001  there is nothing to ask
    """Serve on stdin and stdout, for as long as the client stays."""
    if not has_sdk():
        raise InputError(f"`dscale mcp` needs the MCP SDK, version 2: {install_hint('mcp')}")
    serve()


def has_sdk() -> bool:
    """Whether the SDK is there, in the version whose types are a package of their own."""
    return all(find_spec(name) is not None for name in ("mcp", "mcp_types", "anyio"))


class ProgressListener(Listener):
    """Tells the client how far an answer is, from the thread in which it is worked out."""

    def __init__(self, session: Any) -> None:
        super().__init__()
        self.session, self.last, self.reached = session, 0.0, 0.0

    def step(self, done: int, total: int) -> None:
        import anyio.from_thread

        now = time.monotonic()
        if total <= 0 or now - self.last < OFTEN:
            return
        self.last, self.reached = now, max(self.reached, min(done / total, 1.0))  # what counts anew never goes back
        anyio.from_thread.run(self.session.report_progress, self.reached, 1.0)


def make_server() -> "Server[Any]":
    """A server with every tool."""
    import anyio
    import anyio.to_thread
    import mcp_types as types
    from mcp.server import Server

    every, turn = tools(), anyio.CapacityLimiter(1)
    hints = types.ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )
    listed = [
        types.Tool(name=tool.name, description=tool.description, input_schema=tool.schema(), annotations=hints)
        for tool in every.values()
    ]

    async def list_tools(
        _: "ServerRequestContext[Any]", __: "mcp_types.PaginatedRequestParams | None"
    ) -> "mcp_types.ListToolsResult":
        return types.ListToolsResult(tools=listed)

    async def call_tool(
        context: "ServerRequestContext[Any]", asked: "mcp_types.CallToolRequestParams"
    ) -> "mcp_types.CallToolResult":
        listener = ProgressListener(context.session)
        call = functools.partial(answered, every, asked.name, asked.arguments or {}, listener)
        # one that is no longer wanted ends by itself, at its next word on how far it is: nothing can stop a thread
        reply = await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=turn)
        content: list[Any] = [types.TextContent(type="text", text=reply.text)]
        return types.CallToolResult(content=content, structured_content=reply.record, is_error=reply.failed)

    return Server(
        "dragonscale",
        version=version("dragonscale"),
        instructions=" ".join(Path(__file__).with_name("instructions.md").read_text(encoding="utf-8").split()),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def serve() -> None:
    """Serve one client on stdin and stdout until it goes."""
    import anyio
    from mcp.server.stdio import stdio_server

    async def run() -> None:
        server = make_server()
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(run)
