"""Tests of the package code_execution_mcp with fleets that it starts. python.txtar runs them in a virtual environment in
which the package is installed. CODEFLEET_BIN is the path of the binary."""

import asyncio
import contextlib
import io
import json
import os
import select
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

import codefleet
from code_execution_mcp import (AgentHelper, AppConfig, ExecutionConfig, FilesystemHelper, FleetError, GuardrailConfig, LLMConfig,
                                OptimizationConfig, SandboxExecutor, create_agent, create_server, execute_task, fleet, load_config)
from code_execution_mcp import server as server_module
from code_execution_mcp.config import _seconds


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.start = os.getcwd()
        cls.directory = tempfile.mkdtemp()
        os.chdir(cls.directory)

    @classmethod
    def tearDownClass(cls):
        os.chdir(cls.start)

    def test_task_with_settings(self):
        result, output, error = execute_task("Calculate 5 + 3", workspace_dir="./mine", state_enabled=True, state_file="task.json")
        self.assertEqual((str(result), str(result.status), result.value, output, error), ("8", "success", 8, "5 + 3 = 8\n", None))
        agent = create_agent(workspace_dir="./mine", state_enabled=True, state_file="task.json")
        agent.save_state({"step": 2})
        self.assertEqual(agent.execute_code("import json; json.load(open('/workspace/task.json'))")[0].value, {"step": 2})
        self.assertEqual(len([key for key in fleet._running if "./mine" in key]), 1)

    def test_durations(self):
        """Durations have the units of the fleet's settings."""
        durations = {"500ms": 0.5, "250µs": 0.00025, "1h5m0.5s": 3900.5, "1m0s": 60, "1.5s": 1.5, "90": 90}
        self.assertEqual(durations, {text: _seconds(text) for text in durations})

    def test_components(self):
        config = load_config()
        self.assertEqual((config.guardrails.max_execution_time, config.guardrails.max_memory_mb, config.guardrails.enabled), (300.0, 512, True))
        self.assertEqual((config.settings(), config.execution.state.state_file), ({}, "state.json"))
        with unittest.mock.patch.dict(os.environ, {"CODEFLEET_LLM_API_KEY": "k", "CODEFLEET_LLM_MODEL": "m"}):
            llm = load_config().llm
        self.assertEqual((llm.model, llm.api_key), ("m", None))
        config.execution.workspace_dir = "./components"
        fs_helper = FilesystemHelper(workspace_dir=config.execution.workspace_dir, servers_dir=config.execution.servers_dir,
                                     skills_dir=config.execution.skills_dir)
        executor = SandboxExecutor(execution_config=config.execution, guardrail_config=config.guardrails,
                                   optimization_config=config.optimizations)
        agent = AgentHelper(fs_helper, executor, optimization_config=config.optimizations, llm_config=config.llm)
        result, output, error = agent.execute_task(task_description="Calculate 10 * 5", verbose=False)
        self.assertEqual((result.value, output, error), (50, "10 * 5 = 50\n", None))
        self.assertEqual(fs_helper.list_servers(), ["calculator", "database", "filesystem", "weather"])
        self.assertEqual(fs_helper.list_tools("calculator"), ["add", "calculate", "multiply"])
        self.assertEqual(agent.discover_tools()["weather"], ["get_forecast", "get_weather"])
        self.assertEqual(executor.execute(code="print(6 * 7)", task_description="a")[1:], ("42\n", None))

    def test_directories_must_agree(self):
        with self.assertRaisesRegex(FleetError, "^workspace_dir is ./a for FilesystemHelper and ./b"):
            AgentHelper(FilesystemHelper("./a"), SandboxExecutor(ExecutionConfig(workspace_dir="./b")))

    def test_own_executor(self):
        """With an agent, an executor needs only the method execute."""
        class Executor:
            def execute(self, code):
                return code

        agent = codefleet.Agent(url="http://127.0.0.1:1")
        for fs_helper in (None, FilesystemHelper()):
            helper = AgentHelper(fs_helper, Executor(), agent=agent)
            self.assertEqual((helper.executor.execute("x"), helper.agent, helper.fs_helper.agent()), ("x", agent, agent))

    def test_complete_configuration(self):
        os.makedirs("data", exist_ok=True)
        with open("data/in.csv", "w", encoding="utf-8") as file:
            file.write("1,2\n")
        config = AppConfig(
            execution=ExecutionConfig(workspace_dir="./workspace", servers_dir="./servers", skills_dir="./skills",
                                      sandbox_type="gvisor", allow_network_access=False, mount_directories=["./data"]),
            llm=LLMConfig(enabled=False, provider="azure_openai", azure_endpoint="https://your-resource.openai.azure.com",
                          api_key="your_key", azure_deployment="gpt-4o-mini", temperature=0.3, max_tokens=2000),
            guardrails=GuardrailConfig(enabled=True, strict_mode=False, security_checks=True, max_execution_time=7, max_memory_mb=300),
            optimizations=OptimizationConfig(enabled=True, parallel_discovery=True, tool_cache=True, sandbox_pooling=False),
        )
        server = create_server(config=config)
        self.assertEqual(server.config.execution.workspace_dir, "./workspace")
        result, output, error = server.agent.executor.execute("print(open('/workspace/data/in.csv').read())\nimport time; time.sleep(60)")
        self.assertEqual((str(result.status), output), ("timeout", "1,2\n\n"))
        self.assertIn("7", error)
        self.assertEqual(result.record["result"]["sandbox"]["boot"], "cold")

    def test_directories_of_the_helper(self):
        """The FilesystemHelper that an AgentHelper or a server creates has the directories of the configuration."""
        execution = ExecutionConfig(workspace_dir="./w", servers_dir="./mine", skills_dir="./s")
        with unittest.mock.patch("codefleet.create_agent"):
            for helper in (create_server(config=AppConfig(execution=execution)).agent, AgentHelper(executor=SandboxExecutor(execution))):
                found = (helper.fs_helper.workspace_dir, helper.fs_helper.servers_dir, helper.fs_helper.skills_dir)
                self.assertEqual(found, ("./w", "./mine", "./s"))
                self.assertIs(helper.executor.agent(), helper.agent)

    def test_settings_that_the_fleet_refuses(self):
        for given, text in (({"llm_provider": "nobody"}, "llm.provider"), ({"guardrails_max_memory_mb": -1}, "guardrails.max_memory_mb"),
                            ({"mount_directories": ["./nothing"]}, "is not a directory"), ({"sandbox_type": "docker"}, "sandbox_type")):
            with self.assertRaises(FleetError) as caught:
                create_agent(**given)
            self.assertIn(text, str(caught.exception))
        for name in ("llm_modell", "statefile", "verbos"):
            with self.assertRaisesRegex(TypeError, name):
                create_agent(**{name: "x"})

    def test_functions_as_tools(self):
        def my_custom_tool(param: str) -> str:
            """My custom tool."""
            return f"Result: {param}"

        def tool1(x: int) -> int:
            return x * 2

        def tool2(text: str, times: int = 1) -> dict:
            return {"text": text.upper() * times}

        def boom(a):
            raise ValueError(f"bad {a}")

        def leave():
            class Odd(SystemExit):
                def __str__(self):
                    raise ValueError

            raise Odd(3)

        def odd() -> str:
            return "a\udcff"

        def get_server_info() -> dict:
            """Get server information."""
            return {"tools": server.agent.discover_tools(), "workspace": str(server.config.execution.workspace_dir)}

        config = AppConfig(execution=ExecutionConfig(workspace_dir="./tools"))
        server = create_server(config=config, custom_tools=[tool1, tool2])
        registration = server.register_tool(my_custom_tool)
        server.register_tools([boom, get_server_info, leave, odd])
        result, output, error = server.agent.executor.execute("""
from servers.custom import boom, get_server_info, leave, my_custom_tool, odd, tool1, tool2
print(my_custom_tool("a"), tool1(21), tool2("b", times=2))
for tool in lambda: boom([1]), leave, odd:
    try:
        tool()
    except Exception as e:
        print(str(e)[:70])
get_server_info()
""")
        self.assertEqual((output, error), ("Result: a 42 {'text': 'BB'}\ncustom.boom: ValueError: bad [1]\n"
                                           "custom.leave: Odd\ncustom.odd: the result cannot be sent: the request cannot be encoded: \n", None))
        self.assertEqual(result.value["workspace"], "./tools")
        self.assertEqual(result.value["tools"]["custom"], ["boom", "get_server_info", "leave", "my_custom_tool", "odd", "tool1", "tool2"])

        with self.assertRaises(FleetError) as caught:
            server.agent.agent.register_tools([tool1], server="calculator")
        self.assertEqual((caught.exception.status, caught.exception.code, caught.exception.path), (409, "tool_taken", "/server"))
        registration.close()
        end = time.monotonic() + 30
        while "my_custom_tool" in server.agent.discover_tools()["custom"] and time.monotonic() < end:
            pass
        self.assertNotIn("my_custom_tool", server.agent.discover_tools()["custom"])
        with self.assertRaisesRegex(FleetError, r"tool <lambda>: the parameter \*a cannot be passed by name"):
            server.register_tool(lambda *a: 1)

    def test_server_over_stdio(self):
        requests = [
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
                "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
                "name": "execute_task", "arguments": {"task_description": "Calculate 2 + 2"}}},
        ]
        url, token = create_agent(workspace_dir="./mine", state_enabled=True, state_file="task.json").address()
        env = {**os.environ, "CODEFLEET_URL": url, "CODEFLEET_TOKEN": token}
        with subprocess.Popen([sys.executable, "-m", "code_execution_mcp.server", "stdio"], env=env, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            for request in requests:
                process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            answers = {}
            while 2 not in answers:
                answer = json.loads(process.stdout.readline())
                answers[answer.get("id")] = answer
            process.stdin.close()
            self.assertEqual(process.wait(30), 0)
        content = answers[2]["result"]["structuredContent"]
        self.assertEqual((content["success"], content["result"], content["error"]), (True, 4, None))

    def test_server_without_a_fleet(self):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            self.assertEqual(server_module.main(["http"]), 3)
        self.assertEqual(errors.getvalue(), "no fleet found (start one with `codefleet up`, or set CODEFLEET_URL)\n")
        with self.assertRaisesRegex(FleetError, "'websocket' is not a transport"):
            asyncio.run(create_server(agent=AgentHelper(agent=codefleet.Agent(url="http://127.0.0.1:1"))).run("websocket"))

    def test_a_fleet_ends_with_its_process(self):
        program = ("from code_execution_mcp import create_agent, fleet; import os\n"
                   "create_agent(state_file='a.json'); print(*[f.process.pid for f in fleet._running.values()], flush=True); os._exit(9)")
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 9)
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            ended = os.pidfd_open(int(done.stdout))
            self.assertTrue(select.select([ended], [], [], 30)[0], "the fleet still runs")
            os.close(ended)

    def test_a_fork_leaves_the_fleet(self):
        program = ("from code_execution_mcp import create_agent, fleet; import os, sys\n"
                   "create_agent(state_file='a.json'); found, = fleet._running.values()\n"
                   "child = os.fork()\n"
                   "if child == 0:\n"
                   "    create_agent(state_file='a.json'); sys.exit(len(fleet._running))\n"
                   "status = os.waitpid(child, 0)[1]\n"
                   "print(os.waitstatus_to_exitcode(status), os.path.exists(found.file), found.process.poll())")
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=False, timeout=120)
        self.assertEqual(done.stdout, b"1 True None\n")


if __name__ == "__main__":
    unittest.main()
