"""A form of 12 fields, filled in from a letter by rules: no fleet, no model."""

import json
import os
import subprocess

import mcp_client_helper  # finds the package in this repository
from code_execution_mcp import fleet

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "forms")
FORM, LETTER = os.path.join(HERE, "claim.json"), os.path.join(HERE, "letter.txt")


def codefleet(*args, **kwargs):
    return subprocess.run([fleet.binary(), "form", *args, "-o", "json"], stdout=subprocess.PIPE, check=False, **kwargs)


done = codefleet("fill", FORM, "--from", LETTER, "--by", "rules", "--no-ask")
filled = json.loads(done.stdout)
for name, source in filled["sources"].items():
    print(f"{name:14} {filled['values'][name]!s:28} line {source['line']}: {source['quote']}")
assert done.returncode == 0 and filled["problems"] == [], filled["problems"]
assert filled["values"] == {
    "full_name": "Maria Lindqvist", "date_of_birth": "1984-05-31", "email": "maria.lindqvist@example.org",
    "phone": "+46 8 123 456 78", "policy_number": "PN-204417", "incident_date": "2026-04-09", "cause": "water",
    "rooms": ["kitchen", "hallway"], "amount": 1240.5, "currency": "EUR", "household": 3, "repaired": False,
}, filled["values"]
assert filled["sources"]["policy_number"] == {"by": "rules", "line": 8, "quote": "PN-204417"}, filled["sources"]

wrong = {**filled["values"], "cause": "fire", "rooms": [], "email": "maria"}
done = codefleet("check", FORM, "--values", "-", input=json.dumps(wrong).encode())
problems = {p["field"]: p["message"] for p in json.loads(done.stdout)}
print(problems)
assert done.returncode == 1 and problems == {
    "email": '"E-mail" must be an e-mail address such as ada@example.com',
    "rooms": '"Rooms" needs at least 1 choice',
}, problems
