"""Catalogue modules that earlier programs in this box imported, compiled for later programs.

The runner compiles them from the catalogue's directory, which no program can change; it does not run them.
A catalogue version is immutable, so compiled modules never become stale.
"""

import gc
import os
import re
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader

NAME = re.compile(r"servers(\.[A-Za-z_][A-Za-z0-9_]{0,99}){0,2}", re.ASCII)
MAX_MODULES = 256
MAX_SOURCE = 1 << 20  # bytes of source of all modules
NEEDED = ("__future__", "importlib", "typing")  # imported by generated tool modules

version = None  # the catalogue version of the modules
modules = {}  # name -> (file, code), or None if the module cannot be compiled
source_left = MAX_SOURCE  # bytes of source that may still be compiled


def learn(directory, latest, names):
    """Compiles modules that a program has imported. Called between programs, in the runner."""
    global version, source_left
    for name in NEEDED:
        __import__(name)
    if latest != version:
        version, source_left = latest, MAX_SOURCE
        modules.clear()
    for name in names:
        if name not in modules and len(modules) < MAX_MODULES:
            modules[name] = compiled(os.path.join(directory, version, *name.split(".")))
    gc.freeze()


def compiled(path):
    """Returns a module's file and code, or None if it is missing, too large, or invalid."""
    global source_left
    for file in (os.path.join(path, "__init__.py"), path + ".py"):
        try:
            with open(file, "rb") as source:
                text = source.read(source_left + 1)
        except OSError:
            continue
        if len(text) > source_left:
            return None
        source_left -= len(text)
        try:
            return file, compile(text, file, "exec", dont_inherit=True)
        except Exception:  # importing the module will raise it
            return None
    return None


def use(directory, wanted):
    """Makes a program find the package `servers` of its catalogue version. Called in the program's process."""
    if wanted != version:
        modules.clear()
    path = os.path.join(directory, wanted)
    sys.path.insert(len(sys.path) - 1, path)
    sys.meta_path.insert(0, Finder(path))


def imported():
    """Returns the catalogue modules that this process imported and that are not compiled yet."""
    found = [name for name in list(sys.modules) if isinstance(name, str) and NAME.fullmatch(name)]
    return [name for name in found if name not in modules][:MAX_MODULES]


class Finder:
    def __init__(self, path):
        self.path = path

    def find_spec(self, name, path=None, target=None):
        if modules.get(name) is None:
            return PathFinder.find_spec(name, [self.path]) if name == "servers" else None
        file = modules[name][0]
        spec = ModuleSpec(name, Loader(name, file), origin=file, is_package=file.endswith("__init__.py"))
        spec.has_location = True
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(os.path.dirname(file))
        return spec


class Loader(SourceFileLoader):
    def get_code(self, fullname):
        return modules[fullname][1]
