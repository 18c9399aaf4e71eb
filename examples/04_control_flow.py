"""Conditions, loops and errors are Python in the sandbox. No model decides between two tool calls."""

from mcp_client_helper import create_agent, succeed

agent = create_agent()
result = succeed(agent.execute_task(
    "Get weather for San Francisco, and if temperature is above 20, calculate how many days until summer"))
print(result)
assert isinstance(result.value["temperature above 20"], bool), result.value

result = succeed(agent.execute_code("""
from servers.calculator import calculate
found = {}
for text in ["6 * 7", "1 / 0", "2 +", "10 - 4"]:
    try:
        found[text] = calculate(text)
    except Exception as e:
        found[text] = type(e).__name__
found
"""))
print(result)
assert (result.value["6 * 7"], result.value["10 - 4"]) == (42, 6), result.value
assert isinstance(result.value["1 / 0"], str) and isinstance(result.value["2 +"], str), result.value
