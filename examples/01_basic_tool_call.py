"""A task in words. The fleet selects the tools, writes the program, and runs it in a sandbox."""

from mcp_client_helper import create_agent, succeed

result = succeed(create_agent().execute_task("Calculate 5 + 3 and get weather for San Francisco"))
print(result)
assert result.value["calculation"] == 8, result.value
assert result.value["weather"]["location"] == "San Francisco", result.value
