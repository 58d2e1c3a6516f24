"""What `dscale mcp` can be asked: nothing, it serves what others ask."""

from dataclasses import dataclass


@dataclass(frozen=True)
class McpQuestion:
    """A server on stdin and stdout."""
