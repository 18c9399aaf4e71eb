"""Runs the fleet's MCP server: `python -m code_execution_mcp.server [stdio|sse|http]`, `code-execution-mcp-server`."""

import argparse
import asyncio
import os
import subprocess
import sys

import codefleet

from . import config as configuration
from . import fleet
from .helpers import AgentHelper, SandboxExecutor

_TRANSPORTS = ("stdio", "sse", "http")


class MCPServer:
    """An MCP server for a fleet. `agent` runs tasks on the same fleet."""

    def __init__(self, config=None, agent=None, custom_tools=None):
        self.config = config or configuration.AppConfig()
        executor = SandboxExecutor(self.config.execution, self.config.guardrails, self.config.optimizations)
        self.agent = agent or AgentHelper(executor=executor, agent=codefleet.create_agent(config=self.config))

        if custom_tools:
            self.register_tools(custom_tools)

    def register_tool(self, func, name=None):
        """Offer a Python function to programs, as `from servers.custom import NAME`, and to MCP clients, as custom__NAME,
        until this process ends."""
        return self.register_tools([func], [name])

    def register_tools(self, funcs, names=None):
        """Offer Python functions, like register_tool. Return the Registration."""
        return self.agent.agent.register_tools(funcs, names=names)

    def command(self, transport="stdio"):
        """Return the command that serves MCP, and its environment, which contains the token."""
        if transport not in _TRANSPORTS:
            raise codefleet.FleetError(f"{transport!r} is not a transport", 400, "bad_parameter", "use one of " + ", ".join(_TRANSPORTS))
        url, token = self.agent.agent.address()
        env = {**os.environ, "CODEFLEET_FLEET": "", "CODEFLEET_URL": url, "CODEFLEET_TOKEN": token or ""}
        return [fleet.binary(), "mcp", "--transport", transport], env

    async def run(self, transport="stdio"):
        """Serve MCP until the client disconnects, or until this coroutine is cancelled."""
        command, env = self.command(transport)
        process = await asyncio.create_subprocess_exec(*command, env=env)
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()


def create_server(config=None, agent=None, custom_tools=None):
    """Return an MCPServer. If an agent is given, the config is not used to create one."""
    return MCPServer(config=config, agent=agent, custom_tools=custom_tools)


def run_server(config=None, transport="stdio", custom_tools=None):
    """Serve MCP until the client disconnects. Return the exit code."""
    command, env = create_server(config, custom_tools=custom_tools).command(transport)
    with subprocess.Popen(command, env=env) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.terminate()
            return process.wait()


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="code-execution-mcp-server", description="Serve a codefleet fleet as an MCP server.")
    parser.add_argument("transport", nargs="?", choices=_TRANSPORTS, default="stdio")
    try:
        return run_server(transport=parser.parse_args(arguments).transport)
    except codefleet.FleetError as e:
        print(e, file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
