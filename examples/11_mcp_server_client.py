"""A client of the MCP server over HTTP: each of the seven tools."""

from mcp_client_helper import MCPClient
import code_execution_mcp

client = MCPClient(*code_execution_mcp.create_agent().address())
workspace = {"workspace": "example-11"}

result = client.call_tool("execute_task", {"task_description": "Calculate 2 + 2", "verbose": False, **workspace})
assert (result["success"], result["result"], result["error"]) == (True, 4, None), result
servers = client.call_tool("list_servers")
assert {"calculator", "weather", "filesystem", "database"} <= set(servers.get("result", servers)), servers
tools = client.call_tool("get_server_tools", {"server_name": "calculator"})
assert set(tools.get("result", tools)) == {"add", "multiply", "calculate"}, tools
assert client.call_tool("list_available_tools")["weather"] == ["get_forecast", "get_weather"]
found = client.call_tool("search_tools", {"query": "weather tomorrow", "detail_level": "description", "max_results": 2})
print(found)
assert "get_forecast" in str(found), found
client.call_tool("save_state", {"state_data": {"key1": "value1"}, **workspace})
state = client.call_tool("get_state", workspace)
print(state)
assert (state["exists"], state["data"]) == (True, {"key1": "value1"}), state
