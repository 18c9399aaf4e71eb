"""The simple use as an MCP client: the tools of the fleet's MCP server instead of the Python client."""

from mcp_client_helper import MCPClient
import code_execution_mcp

client = MCPClient(*code_execution_mcp.create_agent().address())
result = client.call_tool("execute_task", {"task_description": "Calculate 5 + 3"})
print(result["result"], result["output"], end="")
assert (result["success"], result["result"], result["error"]) == (True, 8, None), result

tools = client.call_tool("list_available_tools")
print(tools)
assert tools["calculator"] == ["add", "calculate", "multiply"], tools
