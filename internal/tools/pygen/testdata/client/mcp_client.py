"""Replaces the box's client in tests: a call returns what it would send."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple


class ToolError(Exception):
    pass


def call_mcp_tool(server: str, tool: str, arguments: Dict[str, Any], hash: str = "") -> Any:
    return {"server": server, "tool": tool, "arguments": arguments, "hash": hash}


def with_content(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Tuple[Any, List[Any]]:
    return function(*args, **kwargs), []


def parallel(calls: List[Callable[[], Any]], limit: int = 16) -> List[Any]:
    return [call() for call in calls]


def report_call(server: str, tool: str, ms: float, ok: bool) -> None:
    pass
