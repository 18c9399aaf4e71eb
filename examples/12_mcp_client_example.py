"""The same example in both modes: MCP_MODE=true makes it a client of the MCP server."""

import os
import subprocess
import sys

example = os.path.join(os.path.dirname(os.path.abspath(__file__)), "00_simple_api.py")
outputs = [subprocess.run([sys.executable, example], env={**os.environ, "MCP_MODE": mode}, stdout=subprocess.PIPE, check=True).stdout
           for mode in ("false", "true")]
print(outputs[0].decode(), end="")
assert outputs[0] == outputs[1] == b"Result: 8 (success)\nResult: 50\n", outputs
