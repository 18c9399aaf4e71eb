"""Runs all examples and prints a summary. MCP_MODE=true runs them as clients of the MCP server.

    python examples/run_all_examples.py [--list] [PATTERN]…

The examples use the fleet that the client finds. Without one, this program starts one, which needs `codefleet` on PATH
or CODEFLEET_BIN.
"""

import fnmatch
import os
import subprocess
import sys
import time

import mcp_client_helper  # finds the package in this repository
from code_execution_mcp import FleetError, create_agent, fleet

HERE = os.path.dirname(os.path.abspath(__file__))
OTHERS = ["azure_openai.py", "comparison.py", "form_filling.py", "plugin_worker.py", "privacy.py"]


def main(patterns):
    names = sorted(n for n in os.listdir(HERE) if n[:2].isdigit() and n.endswith(".py")) + OTHERS
    commands = {name: [sys.executable, os.path.join(HERE, name)] for name in names}
    program = os.environ.get("EXAMPLES_GO")
    if program:
        listed = subprocess.run([program], stdout=subprocess.PIPE, check=True).stdout.decode().split()
        commands.update({f"go {name}": [program, name] for name in listed})
    chosen = [n for n in commands if not patterns or any(fnmatch.fnmatch(n, f"*{p}*") for p in patterns)]
    if not chosen:
        sys.exit(f"no example matches {' '.join(patterns)}: the examples are {', '.join(commands)}")
    env = dict(os.environ)
    try:
        create_agent()
    except FleetError:
        print("no fleet found: starting one")
        env.update(CODEFLEET_FLEET=fleet.own({}).file, CODEFLEET_URL="")
    failed = []
    for name in chosen:
        began = time.monotonic()
        done = subprocess.run(commands[name], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        mark = "ok" if done.returncode == 0 else "FAILED"
        print(f"{mark:7} {name:34} {(time.monotonic() - began) * 1000:6.0f} ms", flush=True)
        if done.returncode:
            failed.append(name)
            print("        " + done.stdout.decode(errors="replace").rstrip().replace("\n", "\n        "))
    mode = "over MCP" if mcp_client_helper.MCP_MODE else "with the clients"
    print(f"{len(chosen) - len(failed)} of {len(chosen)} examples passed, {mode}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
