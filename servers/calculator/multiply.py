# codefleet: {"generator":1,"server":"calculator","tool":"multiply","function":"multiply","hash":"sha256:165a01ba2dec0a41601649c73b963a25014b227beb89ac1229702c333ebeacb0","server_version":"calculator 1.0.0","signature":"multiply(a: float, b: float) -> float","body":"89c193ae4b3fc85e4cc5f81bd8ea044d"}
"""calculator/multiply: Multiply two numbers."""

from __future__ import annotations

from typing import Any, Dict

from client.mcp_client import call_mcp_tool
from servers import tool

DEFINITION = "sha256:165a01ba2dec0a41601649c73b963a25014b227beb89ac1229702c333ebeacb0"


@tool
def multiply(a: float, b: float) -> float:
    """Multiply two numbers.

    Effects, as the server declares them: read-only.

    Args:
        a: The first number.
        b: The second number.

    Raises:
        ToolError: the call was rejected or could not be made, or the tool failed.
    """
    arguments: Dict[str, Any] = {"a": a, "b": b}
    return call_mcp_tool("calculator", "multiply", arguments, DEFINITION)
