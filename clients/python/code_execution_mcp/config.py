"""The settings that a Python process can give to a fleet that it starts, by the names of the first version.

The first version is the package that docs/first-version.md describes. A field that is None, or has its default, is not
passed to the fleet, which then uses config.yaml, .env and the environment. docs/configuration.md explains the settings.
"""

import dataclasses
import json
import os
import re
import subprocess
from typing import List, Optional

from codefleet import FleetError

from . import fleet


def _setting(default=None, key=None, **kwargs):
    """Return a field whose key in the fleet's settings differs from its name."""
    return dataclasses.field(default=default, metadata={"key": key}, **kwargs)


@dataclasses.dataclass
class StateConfig:
    enabled: Optional[bool] = None
    state_file: Optional[str] = None
    auto_save: Optional[bool] = None
    state_format: Optional[str] = None
    workspace_dir: Optional[str] = None  # no effect: the state document is a file of the workspace


@dataclasses.dataclass
class ExecutionConfig:
    workspace_dir: Optional[str] = None
    servers_dir: str = "./servers"
    skills_dir: str = "./skills"
    sandbox_type: Optional[str] = None
    sandbox_image: Optional[str] = None
    allow_network_access: Optional[bool] = None
    mount_directories: List[str] = dataclasses.field(default_factory=list)  # copied into the workspace
    state: StateConfig = dataclasses.field(default_factory=StateConfig)


@dataclasses.dataclass
class LLMConfig:
    enabled: Optional[bool] = None
    provider: Optional[str] = None
    model: Optional[str] = None
    api_key: Optional[str] = dataclasses.field(default=None, repr=False)
    base_url: Optional[str] = None
    azure_endpoint: Optional[str] = None
    azure_deployment: Optional[str] = _setting(key="azure_deployment_name")
    azure_deployment_name: Optional[str] = None
    azure_api_version: Optional[str] = None
    temperature: Optional[float] = None
    max_tokens: Optional[int] = None


@dataclasses.dataclass
class GuardrailConfig:
    enabled: Optional[bool] = None
    strict_mode: Optional[bool] = None
    security_checks: Optional[bool] = None
    max_execution_time: Optional[float] = None
    max_memory_mb: Optional[int] = None


@dataclasses.dataclass
class OptimizationConfig:
    enabled: Optional[bool] = None
    sandbox_pooling: Optional[bool] = None
    sandbox_pool_size: Optional[int] = None
    tool_cache: Optional[bool] = None
    parallel_discovery: Optional[bool] = None


@dataclasses.dataclass
class LoggingConfig:
    level: Optional[str] = None
    file: Optional[str] = None


@dataclasses.dataclass
class AppConfig:
    execution: ExecutionConfig = dataclasses.field(default_factory=ExecutionConfig)
    llm: LLMConfig = dataclasses.field(default_factory=LLMConfig)
    guardrails: GuardrailConfig = dataclasses.field(default_factory=GuardrailConfig)
    optimizations: OptimizationConfig = dataclasses.field(default_factory=OptimizationConfig)
    logging: LoggingConfig = dataclasses.field(default_factory=LoggingConfig)

    def settings(self):
        """Return the fields that are settings, as {"execution.workspace_dir": "./workspace", …}."""
        found = {}
        for section in dataclasses.fields(self):
            found.update(settings(getattr(self, section.name), section.name))
        return found


def settings(section, prefix):
    """Return the fields of one section that differ from their defaults and from what load_config set, by the fleet's keys."""
    found, defaults = {}, type(section)()
    loaded = getattr(section, "_loaded", {})
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        key = prefix + "." + (field.metadata.get("key") or field.name)
        if dataclasses.is_dataclass(value):
            found.update(settings(value, key))
        elif value not in (None, getattr(defaults, field.name), loaded.get(field.name, None)):
            found[key] = value
    return found


_OPTIONS = {
    "llm_": ("llm", LLMConfig), "state_": ("execution.state", StateConfig), "guardrails_": ("guardrails", GuardrailConfig),
    "guardrail_": ("guardrails", GuardrailConfig), "optimizations_": ("optimizations", OptimizationConfig),
    "optimization_": ("optimizations", OptimizationConfig),
}


def options_settings(options):
    """Return the settings that options of create_agent give, such as {"llm_model": "gpt-4o-mini", "workspace_dir": "./w"}."""
    options = {name: value for name, value in options.items() if value is not None}
    config = options.pop("config", None)
    found = {} if config is None else config.settings()
    parts = {}
    for name, value in options.items():
        prefix = next((p for p in _OPTIONS if name.startswith(p)), "")
        section, kind = _OPTIONS.get(prefix, ("execution", ExecutionConfig))
        field = name[len(prefix):]
        # In StateConfig, the names of these two fields begin with state_: the option has the field's name.
        if prefix == "state_" and name in ("state_file", "state_format"):
            field = name
        if field not in {f.name for f in dataclasses.fields(kind)}:
            raise TypeError(f"create_agent() has no option {name!r}")
        parts.setdefault((section, kind), {})[field] = value
    for (section, kind), values in parts.items():
        found.update(settings(kind(**values), section))
    return found


def load_config(path=None):
    """Return the effective settings of a fleet that is started here: defaults, config.yaml, .env and the environment.

    The binary `codefleet` reads them. If settings are invalid, raise a FleetError that lists all problems.
    """
    command = [fleet.binary(), "config", "show", "-o", "json"] + (["--config", str(path)] if path else [])
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        raise fleet.failed("load the configuration", done.stderr)
    values = {row["key"]: row["value"] for row in json.loads(done.stdout)}
    config = AppConfig()
    for section in dataclasses.fields(config):
        _fill(getattr(config, section.name), section.name, values)
    return config


def _fill(section, prefix, values):
    """Set the fields of a section to the values of their keys, and remember these for settings()."""
    section._loaded = {}
    for field in dataclasses.fields(section):
        key = prefix + "." + (field.metadata.get("key") or field.name)
        current = getattr(section, field.name)
        if dataclasses.is_dataclass(current):
            _fill(current, key, values)
        elif values.get(key) and "(hidden)" not in values[key]:  # a secret is not shown
            value = _parsed(values[key], str(field.type))
            setattr(section, field.name, value)
            section._loaded[field.name] = value


def _parsed(text, kind):
    """Return the value of a setting for a field of this type."""
    if "bool" in kind:
        return text == "true"
    if "int" in kind:
        return int(text)
    if "float" in kind:
        return _seconds(text)
    return text


def _seconds(text):
    """Return a number, or a duration such as 1h5m0s or 500ms, in seconds."""
    units = {"h": 3600, "m": 60, "s": 1, "": 1, "ms": 1e-3, "µs": 1e-6, "us": 1e-6, "ns": 1e-9}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"(-?[\d.]+)([^-\d.]*)", text))


def directories(found_settings):
    """Remove the directories to copy into the workspace from the settings, and return their absolute paths."""
    found = [os.path.abspath(path) for path in found_settings.pop("execution.mount_directories", [])]
    for path in found:
        if not os.path.isdir(path):
            raise FleetError(f"mount_directories: {path} is not a directory", 400, "bad_configuration", f"mkdir -p {path}")
    return found
