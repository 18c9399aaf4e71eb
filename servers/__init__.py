"""The tools of the fleet: one package per server, one module with one function per tool.

    from servers.calculator import add
    total = add(2, 3)
"""

from __future__ import annotations

import sys
from importlib import import_module
from opcode import opmap
from time import monotonic as _monotonic
from types import FunctionType, ModuleType
from typing import Any, Callable, Dict, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

UNSET: Any = type("Unset", (), {"__repr__": lambda self: "UNSET", "__bool__": lambda self: False})()
"""The default of an optional argument, which is not sent."""


def tool(function: _F) -> _F:
    """Wraps a tool's function so that the error about a wrong argument names the signature."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise  # raised in the function
            raise TypeError(_explain(function, str(error), kwargs)) from None

    call.__remote__ = True  # type: ignore[attr-defined]
    return _with_metadata(call, function)  # type: ignore[no-any-return]


def _counted(server: str, name: str, function: Any) -> Any:
    """Wraps a local tool's function so that the task's result lists its calls, and the error about a wrong
    argument names the signature."""
    if not isinstance(function, FunctionType) or getattr(function, "__remote__", False):
        return function
    checked = tool(function)

    def call(*args: Any, **kwargs: Any) -> Any:
        began, ok = _monotonic(), False
        try:
            value = checked(*args, **kwargs)
            ok = True
            return value
        finally:
            _report(server, name, (_monotonic() - began) * 1000, ok)

    return _with_metadata(call, function)


def _report(server: str, name: str, ms: float, ok: bool) -> None:
    try:
        from client.mcp_client import report_call
    except ImportError:
        return
    report_call(server, name, ms, ok)


def _with_metadata(call: Any, function: Any) -> Any:
    call.__name__ = function.__name__
    call.__qualname__ = function.__qualname__
    call.__module__ = function.__module__
    call.__doc__ = function.__doc__
    call.__wrapped__ = function
    return call


def _explain(function: Callable[..., Any], message: str, given: Dict[str, Any]) -> str:
    import inspect

    signature = inspect.signature(function)
    unknown = [name for name in given if name not in signature.parameters]
    hint = "".join(_nearest(name, list(signature.parameters)) for name in unknown)
    return "%s%s; the tool is %s%s" % (message, hint, function.__name__, _as_written(signature))


class _Written(str):
    __repr__ = str.__str__


def _as_written(signature: Any) -> Any:
    """Returns the signature with types as in the source: they are strings, and would be quoted."""

    def bare(kind: Any) -> Any:
        return _Written(kind) if isinstance(kind, str) else kind

    parameters = [p.replace(annotation=bare(p.annotation)) for p in signature.parameters.values()]
    return signature.replace(parameters=parameters, return_annotation=bare(signature.return_annotation))


def _nearest(name: str, names: list[str]) -> str:
    import difflib

    found = difflib.get_close_matches(name, names, 3, 0.5)
    return "; did you mean %s?" % " or ".join(found) if found else ""


class Package(ModuleType):
    """A server. It imports the module of a tool on first use of its function.

    When Python imports a submodule, it sets the submodule as an attribute of the package. __setattr__ sets the function
    instead, so that `from servers.calculator import add` is the function, whatever was imported before. If a module and
    its function have different names, both names are the function.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and name in self.__dict__.get("_tools", ()):
            function = getattr(value, self.__dict__["_tools"][name])
            value = _counted(self.__name__.rpartition(".")[2], name, function)
            if isinstance(value, FunctionType) and "_names" in self.__dict__:
                value.__tool__ = self.__dict__["_names"].get(name, name)  # type: ignore[attr-defined]
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        tools: Dict[str, str] = self.__dict__.get("_tools", {})
        module = name if name in tools else next((m for m, function in tools.items() if function == name), None)
        if module is not None:
            import_module(self.__name__ + "." + module)
            return self.__dict__[module]
        if name.startswith("_"):
            raise AttributeError("module %r has no attribute %r" % (self.__name__, name))
        functions = list(tools.values())
        hint = _nearest(name, functions) or "; it has " + ", ".join(sorted(functions)[:20])
        message = "%s has no tool %r%s" % (self.__name__, name, hint)
        caller = sys._getframe(1)
        if caller.f_code.co_code[caller.f_lasti] == opmap["IMPORT_FROM"]:
            # `from … import …` drops the text of an AttributeError, but not of an ImportError.
            raise ImportError(message, name=self.__name__)
        raise AttributeError(message)

    def __dir__(self) -> list[str]:
        tools: Dict[str, str] = self.__dict__.get("_tools", {})
        return sorted({*super().__dir__(), *tools, *tools.values()})


def package(name: str, tools: Dict[str, str]) -> None:
    """Makes the module `name` a Package of these tools, given as module: function. The module's variable `_names`, if
    there is one, has the names of the tools that are not those of their modules."""
    module = sys.modules[name]
    module.__dict__["_tools"] = tools
    module.__class__ = Package
