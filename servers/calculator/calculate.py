# codefleet: {"generator":1,"server":"calculator","tool":"calculate","function":"calculate","hash":"sha256:cd752494cec36e282221406ad32db5808df0562af9b24d99f71b815c9dc2daa0","server_version":"calculator 1.0.0","signature":"calculate(expression: str) -> float","body":"56230eaf1fb8271002c02968764ed862"}
"""calculator/calculate: Evaluate a mathematical expression."""

from __future__ import annotations

from typing import Any, Dict

from client.mcp_client import call_mcp_tool
from servers import tool

DEFINITION = "sha256:cd752494cec36e282221406ad32db5808df0562af9b24d99f71b815c9dc2daa0"


@tool
def calculate(expression: str) -> float:
    """Evaluate a mathematical expression.

    Effects, as the server declares them: read-only.

    Args:
        expression: Arithmetic such as 2*3+4: numbers, + - * / // % ** (or ^), parentheses, pi, e, and abs, ceil, cos, exp, floor, log, log10, max, min, round, sin, sqrt, tan; length 1000 or less.

    Raises:
        ToolError: the call was rejected or could not be made, or the tool failed.
    """
    arguments: Dict[str, Any] = {"expression": expression}
    return call_mcp_tool("calculator", "calculate", arguments, DEFINITION)
