# codefleet: {"generator":1,"server":"calculator","tool":"add","function":"add","hash":"sha256:2c76fd998c718f37b136e13904b6e5373a750c6772162d0a5d384b7e4b84c9b3","server_version":"calculator 1.0.0","signature":"add(a: float, b: float) -> float","body":"abdfdb302333213636ef9b961fb0b3c2"}
"""calculator/add: Add two numbers together."""

from __future__ import annotations

from typing import Any, Dict

from client.mcp_client import call_mcp_tool
from servers import tool

DEFINITION = "sha256:2c76fd998c718f37b136e13904b6e5373a750c6772162d0a5d384b7e4b84c9b3"


@tool
def add(a: float, b: float) -> float:
    """Add two numbers together.

    Effects, as the server declares them: read-only.

    Args:
        a: The first number.
        b: The second number.

    Raises:
        ToolError: the call was rejected or could not be made, or the tool failed.
    """
    arguments: Dict[str, Any] = {"a": a, "b": b}
    return call_mcp_tool("calculator", "add", arguments, DEFINITION)
