"""Data flows from one tool to the next inside the sandbox, and not through a model: 1 calculation, 50 weather reports."""

from mcp_client_helper import create_agent, succeed

result = succeed(create_agent().execute_task(
    "Calculate 10 * 5, then get weather for that many cities starting with San Francisco"))
print(str(result)[:200], "…")
assert result.value["calculation"] == 50, result.value

reports = succeed(create_agent().execute_code("""
from servers.calculator import multiply
from servers.weather import get_weather
cities = ["San Francisco", "Oslo", "Lima", "Cairo"][:int(multiply(2, 2))]
{city: get_weather(city, "celsius")["unit"] for city in cities}
"""))
print(reports)
assert reports.value == dict.fromkeys(["San Francisco", "Oslo", "Lima", "Cairo"], "celsius"), reports.value
