"""Settings in code: they start a fleet of your own, which ends with the program."""

import tempfile

from mcp_client_helper import create_agent, succeed
from code_execution_mcp import FleetError, load_config

config = load_config()  # defaults, config.yaml, .env, environment
print(config.guardrails, config.llm.provider)
assert config.guardrails.max_execution_time == 300, config.guardrails

agent = create_agent(workspace="main", workspace_dir=tempfile.mkdtemp(), llm_enabled=False, state_enabled=True,
                     state_file="workflow_state.json", guardrails_max_execution_time=20)
agent.save_state({"step": 1}, "workflow_state.json")
result = succeed(agent.execute_code("import json; json.load(open('/workspace/workflow_state.json'))['step'] + 1"))
print(result)
assert result.value == 2, result

try:
    create_agent(llm_provider="no-such-provider")
except FleetError as e:
    print("refused:", e)
    assert "llm.provider" in str(e), e
else:
    raise AssertionError("an invalid setting was accepted")
