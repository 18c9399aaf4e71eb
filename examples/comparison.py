"""What one program saves, compared with calling tools one by one: a model would read all definitions at every turn."""

import mcp_client_helper  # finds the package in this repository
import code_execution_mcp

agent = code_execution_mcp.create_agent(workspace="example-comparison")
result, output, error = agent.execute_task("Calculate 5 + 3 and get weather for San Francisco")
record = result.record["result"]
calls, all_tools = len(record["tools"]["calls"]), record["usage"]["direct_tool_tokens"]
print(f"{calls} tool calls in one program; one by one: {calls + 1} model turns with {all_tools} tokens of definitions each")
print(f"definitions offered for the program: {len(record['tools']['selected'])} of {record['tools']['available']} tools")
assert calls >= 2 and all_tools > 500 and record["tools"]["share"] < 0.5, record["tools"]
