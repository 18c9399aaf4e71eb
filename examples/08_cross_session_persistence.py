"""A workflow over three sessions. Each one may run on another worker."""

from mcp_client_helper import create_agent, succeed

succeed(create_agent(session="session-1").execute_task("""Initialize a calculation workflow:
1. Create /workspace/workflow_state.json with:
   - workflow_id: "calc_001"
   - current_step: 1
   - total_steps: 3
   - results: []
   - status: "in_progress"
2. Calculate 10 * 5 and add the result to the results array
3. Update current_step to 2
"""))
succeed(create_agent(session="session-2").execute_task("""Continue the workflow from the previous session:
1. Read /workspace/workflow_state.json
2. Calculate 20 * 3 and add the result to the results array
3. Update current_step to 3
"""))
succeed(create_agent(session="session-3").execute_task("""Complete the workflow:
1. Read /workspace/workflow_state.json
2. Calculate 15 * 4 and add the result to the results array
3. Calculate the sum of all results in the results array
4. Update current_step to 4 (completed)
5. Update status to "completed"
6. Add a "total" field with the sum of all results
7. Print a summary of the completed workflow
"""))
state = create_agent().get_state("workflow_state.json")
print(state)
assert (state["results"], state["total"], state["current_step"], state["status"]) == ([50, 60, 60], 170, 4, "completed"), state
