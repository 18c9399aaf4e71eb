"""Personal data stays in the fleet: a model, as a client of the MCP server, sees tokens in place of values."""

import os

from mcp_client_helper import MCPAgent, succeed
from code_execution_mcp import create_agent

os.environ["CODEFLEET_PRIVACY_MODE"] = "egress"  # privacy.mode of config.yaml
owner = create_agent(llm_enabled=False, workspace="example-privacy")  # a setting starts a fleet of its own
model = MCPAgent(*owner.address(), "example-privacy", None)

text = "Ada Lovelace, ada@example.org, card 4111 1111 1111 1111"
succeed(owner.execute_code(f"open('customer.txt', 'w').write({text!r})"))
seen = succeed(model.execute_code("print(open('customer.txt').read())")).output
print("a model sees:  ", seen, end="")
assert "ada@example.org" not in seen and "4111" not in seen, seen
assert "[EMAIL_" in seen and "[CARD_" in seen, seen

# The model's programs work with the values, and the owner of the data sees them.
assert succeed(model.execute_code("open('customer.txt').read().count('1111')")).value == 3
seen = succeed(owner.execute_code("print(open('customer.txt').read())")).output
print("the owner sees:", seen, end="")
assert seen == text + "\n", seen
