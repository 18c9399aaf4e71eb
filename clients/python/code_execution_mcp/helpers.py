"""The first version's components. Each passes its calls to a codefleet.Agent."""

import os

import codefleet

from . import config as configuration


class FilesystemHelper:
    """Lists the tools of a fleet, and lists and saves its skills."""

    def __init__(self, workspace_dir=None, servers_dir="./servers", skills_dir="./skills"):
        self.workspace_dir, self.servers_dir, self.skills_dir = workspace_dir, servers_dir, skills_dir
        self._agent = None

    def list_servers(self):
        """Return the names of the servers that have tools."""
        return sorted(self.agent().tools())

    def list_tools(self, server_name):
        """Return the names of the tools of a server."""
        return self.agent().tools()[server_name]

    def save_skill(self, name, code, description=""):
        """Save a program, which later programs import: from skills.NAME import run. It replaces a skill of that name."""
        versions = {skill["name"]: skill.get("version", 0) for skill in self.agent().skills()}
        return self.agent().save_skill(name, code, description or f"The program {name}.",
                                       base=versions.get(name.replace("_", "-"), 0))

    def list_skills(self):
        """Return the names of the skills, as programs import them."""
        return [skill["module"].partition(".")[2] for skill in self.agent().skills()]

    def agent(self):
        if self._agent is None:
            execution = configuration.ExecutionConfig(self.workspace_dir, self.servers_dir, self.skills_dir)
            self._agent = codefleet.create_agent(config=configuration.AppConfig(execution=execution))
        return self._agent


class SandboxExecutor:
    """Runs programs in the sandboxes of a fleet."""

    def __init__(self, execution_config=None, guardrail_config=None, optimization_config=None):
        self.execution_config = execution_config or configuration.ExecutionConfig()
        self.guardrail_config = guardrail_config or configuration.GuardrailConfig()
        self.optimization_config = optimization_config or configuration.OptimizationConfig()
        self._agent = None

    def execute(self, code, task_description=None):
        """Run a program and return (result, output, error)."""
        return self.agent().execute_code(code, description=task_description)

    def config(self):
        return configuration.AppConfig(execution=self.execution_config, guardrails=self.guardrail_config,
                                       optimizations=self.optimization_config)

    def agent(self):
        if self._agent is None:
            self._agent = codefleet.create_agent(config=self.config())
        return self._agent


class AgentHelper:
    """Runs tasks: the fleet selects the tools, writes the program and runs it."""

    def __init__(self, fs_helper=None, executor=None, optimization_config=None, llm_config=None, agent=None):
        self.executor = executor or SandboxExecutor()
        if fs_helper is None:
            execution = getattr(self.executor, "execution_config", None) or configuration.ExecutionConfig()
            fs_helper = FilesystemHelper(execution.workspace_dir, execution.servers_dir, execution.skills_dir)
        self.fs_helper = fs_helper
        self._agent = agent
        if agent is None:
            config = self.executor.config()
            config.optimizations = optimization_config or config.optimizations
            config.llm = llm_config or configuration.LLMConfig()
            for name in ("workspace_dir", "servers_dir", "skills_dir"):
                _agree(config.execution, name, getattr(self.fs_helper, name))
            self._agent = codefleet.create_agent(config=config)
        self.fs_helper._agent = self.executor._agent = self._agent

    def execute_task(self, task_description, task_specific_calls=None, required_tools=None, header_comment=None, verbose=False,
                     context=None):
        """Run a task and return (result, output, error)."""
        return self._agent.execute_task(task_description, verbose=verbose, required_tools=required_tools,
                                        task_specific_calls=task_specific_calls, header_comment=header_comment, context=context)

    def discover_tools(self, verbose=False):
        """Return {server: [tool, …]}."""
        return self._agent.tools()

    @property
    def agent(self):
        """The codefleet.Agent."""
        return self._agent


def _agree(execution, name, value):
    """Set a directory of the executor's configuration to that of the FilesystemHelper. If both are given and differ, raise
    a FleetError. The first version needed the directory in both places."""
    default = getattr(configuration.ExecutionConfig(), name)
    if value in (None, default):
        return
    current = getattr(execution, name)
    if current not in (None, default) and os.path.abspath(current) != os.path.abspath(value):
        raise codefleet.FleetError(f"{name} is {value} for FilesystemHelper and {current} for SandboxExecutor", 400, "bad_configuration",
                                   "give both the same directory", name)
    setattr(execution, name, value)
