"""The MCP server over standard input and output, as an agent's application starts it."""

from mcp_client_helper import MCPClient
from code_execution_mcp import create_server

SEVEN = {"execute_task", "list_available_tools", "get_state", "save_state", "list_servers", "get_server_tools", "search_tools"}

command, env = create_server().command("stdio")  # or: python -m code_execution_mcp.server
client = MCPClient(command=command, env=env)
names = {tool["name"] for tool in client.request("tools/list")["tools"]}
print(sorted(names))
assert SEVEN <= names, SEVEN - names

result = client.call_tool("execute_task", {"task_description": "Calculate 2 + 2"})
print(result["result"])
assert (result["success"], result["result"]) == (True, 4), result
client.close()
