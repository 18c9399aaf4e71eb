"""A worker with the plugin in plugin/ refuses programs, redacts their output, and labels their results."""

import os
import subprocess
import tempfile

from mcp_client_helper import succeed
from code_execution_mcp import create_agent, fleet

HERE = os.path.dirname(os.path.abspath(__file__))
own = fleet.own({})

with tempfile.TemporaryDirectory() as directory:
    worker = os.environ.get("EXAMPLES_PLUGIN")
    if not worker:
        worker = os.path.join(directory, "plugin")
        subprocess.run(["go", "build", "-o", worker, "./plugin"], cwd=HERE, check=True)
    path = os.path.dirname(os.path.abspath(fleet.binary())) + os.pathsep + os.environ["PATH"]  # of runsc
    env = {**os.environ, "PATH": path, "CODEFLEET_DATA": os.path.join(directory, "data"), "CODEFLEET_WORKER_POOLS": "house"}
    process = subprocess.Popen([worker, "--fleet", own.file], env=env)
    try:
        agent = create_agent(fleet=own.file, pool="house")
        result, _, error = agent.execute_code("from fractions import Fraction\nstr(Fraction(1, 3))")
        print(error)
        assert result.status.value == "blocked", result
        assert "programs of this fleet must not import fractions" in error, error

        result = succeed(agent.execute_code("print('sk-abcdefgh12')\n6 * 7"))
        print(result, result.output, end="")
        assert result.value == 42, result
        assert result.output == "[key]\n", result.output
        assert result.record["result"]["labels"] == {"house-rules": "2026-1"}, result.record
    finally:
        process.terminate()
        assert process.wait(60) == 0, process.returncode
