"""Two sessions: the second one continues with the file that the first one saved."""

from mcp_client_helper import create_agent, succeed

succeed(create_agent(session="first").execute_task("""Create /workspace/state.json with:
- calculation: "5 + 3"
- result: 8
- step: 1
- message: "saved"
"""))
succeed(create_agent(session="second").execute_task("Read /workspace/state.json, update step to 2 and save it back"))
state = create_agent().get_state()
print(state)
assert state == {"calculation": "5 + 3", "result": 8, "step": 2, "message": "saved"}, state
