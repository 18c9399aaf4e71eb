"""Saves the figures that a program shows, and its result if that is a figure or a table, as files below artifacts/.

The task returns these files.

It runs in the process of the program. It does not import matplotlib or pandas unless the program does.
"""

import importlib.util
import os
import sys

DIRECTORY = "artifacts"


class Saver:
    """Saves figures and tables, numbered from 1, in the workspace."""

    def __init__(self, workspace):
        self.workspace = workspace
        self.counts = {}
        self.figures = []  # saved already

    def watch(self, code):
        """Makes plt.show() save figures, if the program might draw."""
        if "plot" not in code:
            return
        os.environ.setdefault("MPLBACKEND", "Agg")
        os.environ.setdefault("MPLCONFIGDIR", os.environ.get("TMPDIR", "/tmp"))
        if "matplotlib.pyplot" in sys.modules:
            self.patch(sys.modules["matplotlib.pyplot"])
        else:
            sys.meta_path.insert(0, Watcher(self.patch))

    def patch(self, pyplot):
        def show(*args, **kwargs):
            for number in pyplot.get_fignums():
                self.draw(pyplot.figure(number))
            pyplot.close("all")

        pyplot.show = show

    def save(self, value):
        """Saves the value of a program if it is a figure or a table. Returns its path, or None."""
        package = {c.__module__.partition(".")[0] for c in type(value).__mro__}
        if package & {"matplotlib", "seaborn"}:
            figure = value if hasattr(value, "savefig") else getattr(value, "figure", None)
            return self.draw(figure) if hasattr(figure, "savefig") else None
        if "pandas" in package and hasattr(value, "to_csv"):
            path = self.path("table", "csv")
            value.to_csv(os.path.join(self.workspace, path))
            return path
        return None

    def draw(self, figure):
        for saved, path in self.figures:
            if saved is figure:
                return path
        path = self.path("figure", "png")
        figure.savefig(os.path.join(self.workspace, path), format="png", bbox_inches="tight")
        self.figures.append((figure, path))
        return path

    def path(self, kind, extension):
        """Returns the path of a new file, relative to the workspace."""
        os.makedirs(os.path.join(self.workspace, DIRECTORY), exist_ok=True)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return "%s/%s-%d.%s" % (DIRECTORY, kind, self.counts[kind], extension)


class Watcher:
    """An import hook that calls patch with matplotlib.pyplot after its import."""

    def __init__(self, patch):
        self.patch = patch

    def find_spec(self, name, path=None, target=None):
        if name != "matplotlib.pyplot" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                self.patch(module)

            spec.loader.exec_module = exec_module
        return spec
