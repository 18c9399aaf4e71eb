"""State through MCP tools, through programs, and through both."""

from mcp_client_helper import create_agent, succeed

agent = create_agent()
agent.save_state({"step": 1, "results": []})  # by a tool
assert agent.get_state() == {"step": 1, "results": []}, agent.get_state()

for calculation in ("10 * 5", "20 * 3"):  # by programs
    succeed(agent.execute_code("""
import json
from servers.calculator import calculate
state = json.load(open("/workspace/state.json"))
state["results"].append(calculate(inputs))
state["step"] += 1
json.dump(state, open("/workspace/state.json", "w"))
""", inputs=calculation))

state = agent.get_state()  # by both
succeed(agent.execute_task(f"Calculate {state['results'][0]} + {state['results'][1]}"))
agent.save_state({**state, "total": sum(state["results"])})
state = create_agent(session="later").get_state()
print(state)
assert state == {"step": 3, "results": [50, 60], "total": 110}, state
