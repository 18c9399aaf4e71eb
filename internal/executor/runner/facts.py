"""What a program imports, calls and refers to, for the decision whether it may run."""

import ast
import json

LIMIT = 1000  # elements per list
NAME = 200  # characters per name

# Built-in functions that run or load code. A program may use them without calling them: run = eval.
CODE = frozenset(("eval", "exec", "compile", "__import__", "breakpoint"))

# Functions and methods with paths as arguments, and whether they change what the path names. The mode of open decides.
PATHS = {
    name: True
    for name in (
        "os.chmod os.chown os.link os.makedirs os.mkdir os.mkfifo os.mknod os.remove os.removedirs os.rename os.renames "
        "os.replace os.rmdir os.symlink os.truncate os.unlink shutil.chown shutil.copy shutil.copy2 shutil.copyfile "
        "shutil.copytree shutil.move shutil.rmtree pathlib.Path.chmod pathlib.Path.mkdir pathlib.Path.rename "
        "pathlib.Path.replace pathlib.Path.rmdir pathlib.Path.symlink_to pathlib.Path.touch pathlib.Path.unlink "
        "pathlib.Path.write_bytes pathlib.Path.write_text"
    ).split()
}
PATHS.update(
    (name, False)
    for name in (
        "open io.open codecs.open os.open os.listdir os.scandir os.walk pathlib.Path.open pathlib.Path.read_bytes "
        "pathlib.Path.read_text"
    ).split()
)

HUGE = 10**9  # elements or bytes
LISTS = ("imports", "calls", "attributes", "references", "paths", "signs")
ROOM = 1 << 19  # bytes of all lists, in a frame


def encoded(tree, code):
    """Returns the facts as JSON. Of a program that cannot be judged as a whole, they are truncated."""
    try:
        found = facts(tree, code)
    except Exception:  # such as RecursionError or MemoryError
        found = {"lines": code.count("\n") + 1, "truncated": True}
    while True:
        body = json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        if len(body) <= ROOM:
            return body
        for key in LISTS:
            found[key] = found[key][: len(found[key]) // 2]
        found["truncated"] = True


def facts(tree, code):
    """Returns what a parsed program imports and uses, with lines. Each list is in the order of the program."""
    return Finder(tree).find(code)


class Finder:
    def __init__(self, tree):
        self.nodes = list(ast.walk(tree))
        self.imports, self.calls, self.attributes, self.references, self.paths, self.signs = [], [], [], [], [], []
        self.imported = {}  # name in the program -> imported name
        self.values = {}  # name in the program -> text that is assigned to it
        self.defined = {node.name for node in tree.body if isinstance(node, DEFINITIONS)}
        self.callees = set()  # nodes that are called, or part of a longer name

    def find(self, code):
        for node in self.nodes:
            self.bind(node)
        for node in self.nodes:
            look = LOOK.get(type(node))
            if look:
                look(self, node)
        found = {"lines": code.count("\n") + 1}
        for key in LISTS:
            uses = getattr(self, key)
            found[key] = sorted(uses[:LIMIT], key=lambda use: use["line"])
            if len(uses) > LIMIT:
                found["truncated"] = True
        return found

    def bind(self, node):
        """Notes which names a node binds, and to what."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                self.imports.append({"module": alias.name, "line": node.lineno})
                top = alias.name.partition(".")[0]
                self.imported[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            names = [alias.name for alias in node.names]
            self.imports.append({"module": module, "names": names[:LIMIT], "line": node.lineno})
            for alias in node.names:
                self.imported[alias.asname or alias.name] = module + "." + alias.name
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            self.assign(node.targets[0].id, node.value)
        elif isinstance(node, ast.Attribute):
            self.callees.add(id(node.value))
        elif isinstance(node, ast.Call):
            self.callees.add(id(node.func))

    def assign(self, name, value):
        if isinstance(value, ast.Name) and value.id in self.imported:
            self.imported[name] = self.imported[value.id]
        elif isinstance(value, ast.Call) and self.module(value):
            self.imported[name] = self.module(value)
        elif self.path(value):
            self.values[name] = self.path(value)

    def module(self, call):
        """Returns the module that a call imports, if its name is constant."""
        if self.name(call.func) in ("__import__", "importlib.import_module", "importlib.__import__") and call.args:
            return constant(call.args[0])
        return None

    def path(self, node):
        """Returns the path that a node has, if it is constant."""
        if isinstance(node, ast.Name):
            return self.values.get(node.id)
        if isinstance(node, ast.Call) and node.args and self.name(node.func) == "pathlib.Path":
            return self.path(node.args[0])
        return constant(node)

    def name(self, node):
        """Returns the dotted name of a node, with its first part as imported, or "" if the node has no name.

        The name of a method of an expression's value begins with a dot: ".run" for make().run().
        """
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            parts.append(self.imported.get(node.id, node.id))
        elif parts:
            parts.append("")
        return ".".join(reversed(parts))

    def call(self, node):
        name = self.name(node.func)
        if name and name not in self.defined:
            self.calls.append({"name": name[:NAME], "line": node.lineno})
        if name == "getattr" and len(node.args) > 1:
            self.getattr(node)
        elif name == "vars" and node.args and self.known(node.args[0]):
            self.sign("computed_attribute", node, self.known(node.args[0]))
        elif name in ("__import__", "importlib.import_module", "importlib.__import__"):
            module = self.module(node)
            if module:
                self.imports.append({"module": module[:NAME], "line": node.lineno})
            else:
                self.sign("computed_import", node)
        elif name == "range" and any((number(arg) or 0) >= HUGE for arg in node.args):
            self.sign("huge_range", node)
        self.file(node, name)

    def getattr(self, node):
        module = self.known(node.args[0])
        if not module:
            text = constant(node.args[1])
            if text and text.startswith("__"):
                self.attributes.append({"name": text[:NAME], "line": node.lineno})
            return
        attribute = constant(node.args[1])
        if attribute:
            self.references.append({"name": (module + "." + attribute)[:NAME], "line": node.lineno})
        else:
            self.sign("computed_attribute", node, module)

    def known(self, node):
        """Returns the dotted name of an imported module or of something in one, or "" for anything else."""
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and (root.id in self.imported or root.id == "__builtins__"):
            return self.name(node)
        return ""

    def file(self, node, name):
        on = node.func.value if isinstance(node.func, ast.Attribute) else None
        if on is not None and self.path(on) and not name.startswith(("os.", "io.", "shutil.", "codecs.")):
            name = "pathlib.Path." + node.func.attr
            paths = [self.path(on)] + [self.path(arg) for arg in node.args[:1] if name.endswith(("name", "replace"))]
            mode = node.args[:1]
        else:
            paths, mode = [self.path(arg) for arg in node.args[:2]], node.args[1:2]
        writes = PATHS.get(name)
        if writes is None:
            return
        if name.endswith("open"):
            mode += [keyword.value for keyword in node.keywords if keyword.arg in ("mode", "flags")]
            paths = paths[:1]
            text = constant(mode[0]) if mode else "r"
            writes = text is None or any(c in text for c in "wax+")
        for path in paths:
            if path:
                self.paths.append({"name": name, "path": path[:NAME], "write": writes, "line": node.lineno})

    def named(self, node):
        name = getattr(node, "attr", None) or getattr(node, "id", None)
        if name.startswith("__"):
            self.attributes.append({"name": name[:NAME], "line": node.lineno})
        if id(node) in self.callees or not isinstance(node.ctx, ast.Load):
            return
        if isinstance(node, ast.Name):
            if name in CODE and name not in self.defined:
                self.references.append({"name": name, "line": node.lineno})
            elif name in self.imported:
                self.references.append({"name": self.imported[name][:NAME], "line": node.lineno})
            return
        name = self.known(node)
        if name:
            self.references.append({"name": name[:NAME], "line": node.lineno})

    def subscript(self, node):
        name = self.name(node.value)
        if name == "sys.modules" or name.endswith(".__dict__") and self.known(node.value):
            self.sign("computed_attribute", node, name)

    def loop(self, node):
        if not (isinstance(node.test, ast.Constant) and node.test.value):
            return
        for inside in ast.walk(node):
            if isinstance(inside, ENDS) or isinstance(inside, ast.Call) and self.name(inside.func) in EXITS:
                return
        self.sign("endless_loop", node)

    def operation(self, node):
        if isinstance(node.op, ast.Mult):
            for many, one in ((node.left, node.right), (node.right, node.left)):
                if isinstance(one, (ast.List, ast.Tuple)) or isinstance(getattr(one, "value", None), (str, bytes)):
                    if (number(many) or 0) >= HUGE:
                        self.sign("huge_value", node)
        elif isinstance(node.op, ast.Pow) and number(node) == LARGEST:
            self.sign("huge_value", node)

    def sign(self, kind, node, name=""):
        self.signs.append({"kind": kind, "name": name[:NAME], "line": node.lineno})


DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
ENDS = (ast.Break, ast.Return, ast.Raise, ast.Yield, ast.YieldFrom, ast.Await)
EXITS = frozenset(("exit", "quit", "sys.exit", "os._exit"))

LOOK = {
    ast.Call: Finder.call,
    ast.Name: Finder.named,
    ast.Attribute: Finder.named,
    ast.Subscript: Finder.subscript,
    ast.While: Finder.loop,
    ast.BinOp: Finder.operation,
}


DEPTH = 20  # of an expression whose value is computed


def constant(node, depth=0):
    """Returns a constant text, or None. Texts that are added are one text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and depth < DEPTH:
        left, right = constant(node.left, depth + 1), constant(node.right, depth + 1)
        if left is not None and right is not None:
            return (left + right)[: 2 * NAME]
    return None


def number(node, depth=0):
    """Returns a constant whole number, at most LARGEST, or None."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return min(node.value, LARGEST)
    if not isinstance(node, ast.BinOp) or depth == DEPTH:
        return None
    left, right = number(node.left, depth + 1), number(node.right, depth + 1)
    if left is None or right is None or left < 0 or right < 0:
        return None
    if isinstance(node.op, ast.Mult):
        return min(left * right, LARGEST)
    if isinstance(node.op, ast.Pow):
        return LARGEST if left > 1 and left.bit_length() * right > LARGEST_BITS else min(left**right, LARGEST)
    return None


LARGEST_BITS = 10**7
LARGEST = 1 << LARGEST_BITS
