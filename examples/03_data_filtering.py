"""Rows are filtered and summarised in the sandbox. Only the statistics leave it. The table is in data/users.csv."""

import csv
import os

from mcp_client_helper import create_agent, succeed

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "users.csv"), encoding="utf-8") as file:
    users = list(csv.DictReader(file))

agent = create_agent()
succeed(agent.execute_code("""
from servers.database import execute
execute("DROP TABLE IF EXISTS users")
execute("CREATE TABLE users (id INTEGER, name TEXT, age INTEGER, active INTEGER)")
for user in inputs:
    execute("INSERT INTO users VALUES (?, ?, ?, ?)", [int(user["id"]), user["name"], int(user["age"]), int(user["active"])])
""", inputs=users))
result = succeed(agent.execute_task("Query database for users, filter for active users, and calculate statistics"))
print(result)
assert "Bob" not in str(result), result  # he is not active
assert '"mean": 35' in str(result) and '"count": 2' in str(result), result
