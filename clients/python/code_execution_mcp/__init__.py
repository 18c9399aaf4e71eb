"""The names of the first version's package, on a codefleet fleet. docs/first-version.md lists each name.

    from code_execution_mcp import create_agent, execute_task

    result, output, error = execute_task("Calculate 5 + 3")
    print(result)         # 8
    print(result.status)  # success
"""

import importlib

from codefleet import ExecutionResult, FleetError, Result, create_agent, execute_task

from .config import (AppConfig, ExecutionConfig, GuardrailConfig, LLMConfig, LoggingConfig, OptimizationConfig, StateConfig,
                     load_config)
from .helpers import AgentHelper, FilesystemHelper, SandboxExecutor

__all__ = [
    "AgentHelper", "AppConfig", "ExecutionConfig", "ExecutionResult", "FilesystemHelper", "FleetError", "GuardrailConfig",
    "LLMConfig", "LoggingConfig", "MCPServer", "OptimizationConfig", "Result", "SandboxExecutor", "StateConfig",
    "create_agent", "create_server", "execute_task", "load_config", "run_server",
]


def __getattr__(name):
    if name not in ("MCPServer", "create_server", "run_server", "server"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    server = importlib.import_module(".server", __name__)  # not before: `python -m code_execution_mcp.server` loads it
    return server if name == "server" else getattr(server, name)
