"""The simplest use: one call, or an agent for several tasks."""

from mcp_client_helper import create_agent, execute_task

result, output, error = execute_task("Calculate 5 + 3")
print(f"Result: {result}", f"({result.status})")
assert (result.value, error) == (8, None), (result, output, error)

agent = create_agent()
result, output, error = agent.execute_task("Calculate 10 * 5")
print(f"Result: {result}")
assert (result.value, error) == (50, None), (result, output, error)
