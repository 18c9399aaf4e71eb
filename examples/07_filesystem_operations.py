"""Files of the workspace: written by a task in words, and by tools."""

from mcp_client_helper import create_agent, succeed

agent = create_agent()
result = succeed(agent.execute_task("Write a test file with content 'Hello World', then read it back and print the content"))
print(result)
assert "Hello World" in result.output, result.output

result = succeed(agent.execute_code("""
from servers.filesystem import list_directory, read_file, write_file
for n in range(3):
    write_file(f"/workspace/reports/{n}.txt", f"line {n}\\n" * n)
names = [item["name"] for item in list_directory("/workspace/reports")["items"]]
{name: len(read_file(f"/workspace/reports/{name}").splitlines()) for name in sorted(names)}
"""))
print(result)
assert result.value == {"0.txt": 0, "1.txt": 1, "2.txt": 2}, result.value
