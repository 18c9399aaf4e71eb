"""A function that worked once is a skill: later tasks import it."""

from mcp_client_helper import create_agent, succeed

agent = create_agent()
succeed(agent.execute_code("""
import os
os.makedirs("/workspace/skills", exist_ok=True)
with open("/workspace/skills/double_number.py", "w") as file:
    file.write("def run(x):\\n    return 2 * x\\n")
"""))
result = succeed(agent.execute_task("Import the double_number skill and use it to double 15"))
print(result)
assert result.value == 30, result
