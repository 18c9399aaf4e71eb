# codefleet: {"generator":1,"server":"calculator","tool":"multiply","function":"multiply","hash":"sha256:165a01ba2dec0a41601649c73b963a25014b227beb89ac1229702c333ebeacb0","server_version":"calculator 1.0.0","signature":"multiply(a: float, b: float) -> float","body":"0142b72ef3960aa3825cf99020e7da61"}
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
        ToolError: the call was rejected, or the tool failed.
    """
    arguments: Dict[str, Any] = {"a": a, "b": b}
    return call_mcp_tool("calculator", "multiply", arguments, DEFINITION)
