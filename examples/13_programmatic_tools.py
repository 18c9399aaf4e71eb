"""Python functions as tools: programs import them, MCP clients see them, and this process runs them."""

from mcp_client_helper import create_agent, succeed
from code_execution_mcp import FleetError, create_server


def greet(name: str, greeting: str = "Hello") -> str:
    """Greet a person."""
    return f"{greeting}, {name}!"


def calculate_square(number: float) -> float:
    """Calculate the square of a number."""
    return number * number


def reverse_string(text: str) -> str:
    """Reverse a text."""
    return text[::-1]


def get_server_info() -> dict:
    """Return what the server offers."""
    return {"calculator": server.agent.discover_tools()["calculator"]}


server = create_server(custom_tools=[greet, calculate_square])
server.register_tool(reverse_string)
server.register_tools([get_server_info])
result = succeed(create_agent().execute_code("""
from servers.custom import calculate_square, get_server_info, greet, reverse_string
[greet("Ada"), greet("Bo", greeting="Hi"), calculate_square(4), reverse_string("abc"), get_server_info()]
"""))
print(result)
assert result.value == ["Hello, Ada!", "Hi, Bo!", 16, "cba", {"calculator": ["add", "calculate", "multiply"]}], result.value

try:
    server.agent.agent.register_tools([greet], server="calculator")
except FleetError as e:
    print("refused:", e)
    assert e.code == "tool_taken", e.code
