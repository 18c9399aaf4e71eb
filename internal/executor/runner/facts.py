"""Finds what a program imports, calls and refers to. The host decides from these facts whether it may run."""

import ast
import json
import posixpath

MAX_USES = 1000  # elements per list
MAX_NAME = 200  # characters per name
MAX_SHADOWING = 20  # functions that bind_parameters examines
MAX_PASSED = 5  # modules that visit_passed takes into account

# Built-in functions that run or load code. A program may use them without calling them: run = eval.
CODE = frozenset(("eval", "exec", "compile", "__import__", "breakpoint"))

# Built-in functions that are followed like imported ones if the program uses them as values: f = open.
FOLLOWED = ("getattr", "open", "vars")

# Functions and methods that take paths, and whether they change what the path names. For open, the mode decides.
PATHS = {
    name: True
    for name in (
        "os.chmod os.chown os.link os.makedirs os.mkdir os.mkfifo os.mknod os.remove os.removedirs os.rename os.renames "
        "os.replace os.rmdir os.symlink os.truncate os.unlink shutil.chown shutil.copy shutil.copy2 shutil.copyfile "
        "shutil.copytree shutil.move shutil.rmtree pathlib.Path.chmod pathlib.Path.mkdir pathlib.Path.rename "
        "pathlib.Path.replace pathlib.Path.rmdir pathlib.Path.symlink_to pathlib.Path.touch pathlib.Path.unlink "
        "pathlib.Path.write_bytes pathlib.Path.write_text numpy.save numpy.savetxt numpy.savez"
    ).split()
}
PATHS.update(
    (name, False)
    for name in (
        "open io.open codecs.open os.open os.listdir os.scandir os.walk pathlib.Path.open pathlib.Path.read_bytes "
        "pathlib.Path.read_text numpy.genfromtxt numpy.load numpy.loadtxt"
    ).split()
)
READERS = ("pandas.read_", "polars.read_", "polars.scan_")  # how names of functions that read a path or a URL begin
WRITERS = frozenset(  # methods of tables and figures that write a file
    "to_csv to_excel to_feather to_hdf to_html to_json to_parquet to_pickle savefig imsave".split()
)
PATH_KEYWORDS = frozenset("file filename path src dst top fname path_or_buf filepath_or_buffer".split())

# Functions that import a module by name.
IMPORTERS = ("__import__", "importlib.import_module", "importlib.__import__")

# Modules that many modules of the library import: shutil.os is os.
COMMON = frozenset(("os", "sys", "builtins", "subprocess"))

# Attributes of frames through which programs reach modules that they have not imported.
FRAMES = frozenset(("f_globals", "f_builtins"))

# Arguments that permit a function to load pickles.
PICKLES = {"allow_pickle": True, "weights_only": False}

# Functions that return the program's variables as a dictionary.
VARIABLES = ("globals", "locals", "vars")

# Functions that make functions from the names of attributes.
GETTERS = ("operator.attrgetter", "operator.methodcaller")

# Functions that use only the names in sys.modules, not the modules.
NAMES_ONLY = frozenset(("len", "list", "set", "sorted"))

HUGE = 10**9  # limit of a range, or repetitions of a sequence
LISTS = ("imports", "calls", "attributes", "references", "paths", "signs")
MAX_BYTES = 1 << 19  # of all facts as JSON, so that they fit into a frame


def encoded(tree, code):
    """Returns the facts as JSON. If they are incomplete, "truncated" is true."""
    try:
        found = facts(tree, code)
    except Exception:  # such as RecursionError or MemoryError
        found = {"lines": code.count("\n") + 1, "truncated": True}
    while True:
        body = json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        if len(body) <= MAX_BYTES:
            return body
        for key in LISTS:
            found[key] = found[key][: len(found[key]) // 2]
        found["truncated"] = True


def facts(tree, code):
    """Returns what a parsed program imports and uses, with line numbers. Each list is sorted by line."""
    return Finder(tree).find(code)


class Finder:
    def __init__(self, tree):
        self.nodes = list(ast.walk(tree))
        self.imports, self.calls, self.attributes, self.references, self.paths, self.signs = [], [], [], [], [], []
        self.imported = {name: name for name in FOLLOWED}  # name in the program -> imported or built-in name
        self.values = {}  # name in the program -> path that is assigned to it
        # Names that mean the program's own functions and classes, although they may be in CODE.
        self.defined = {node.name for node in tree.body if isinstance(node, DEFINITIONS)}
        self.defined.update(
            node.targets[0].id
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, (ast.Attribute, ast.Lambda))
            and node.targets[0].id in CODE
        )
        self.callees = set()  # ids of nodes that are called, or part of a longer name
        self.bound = set()  # names that the program binds to values of its own
        self.own = set()  # ids of names that mean a parameter, although they are in CODE
        self.shadowing = 0  # functions with such a parameter
        self.ending = set()  # ids of the expressions after `in` of for loops that may end early
        self.modules = set()  # imported modules
        self.keys_only = set()  # ids of expressions that are used only for their keys, as in "os" in sys.modules
        self.passed = set()  # modules that the program uses as values, so that another name may mean them

    def find(self, code):
        for node in self.nodes:
            self.bind(node)
        own = (self.bound | self.defined).intersection(FOLLOWED)  # for example, open of open, high, low, close
        self.imported = {name: value for name, value in self.imported.items() if value not in own}
        for node in self.nodes:
            visit = VISITORS.get(type(node))
            if visit:
                visit(self, node)
        if self.passed:
            self.visit_passed()
        found = {"lines": code.count("\n") + 1}
        for key in LISTS:
            uses = getattr(self, key)
            found[key] = sorted(uses[:MAX_USES], key=lambda use: use["line"])
            if len(uses) > MAX_USES:
                found["truncated"] = True
        return found

    def bind(self, node):
        """Records which names a node binds, and to what."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                self.imports.append({"module": alias.name, "line": node.lineno})
                self.modules.add(alias.name)
                top = alias.name.partition(".")[0]
                self.imported[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            names = [alias.name for alias in node.names]
            self.imports.append({"module": module, "names": names[:MAX_USES], "line": node.lineno})
            for alias in node.names:
                self.imported[alias.asname or alias.name] = module + "." + alias.name
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            self.assign(node.targets[0].id, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and isinstance(node.target, ast.Name) and node.value:
            self.assign(node.target.id, node.value)
        elif isinstance(node, ast.Attribute):
            self.callees.add(id(node.value))
        elif isinstance(node, ast.Call):
            self.callees.add(id(node.func))
            if getattr(node.func, "id", None) in NAMES_ONLY:
                self.keys_only.update(map(id, node.args))
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            self.keys_only.add(id(node.comparators[0]))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) or isinstance(node, ast.arg):
            self.bound.add(getattr(node, "id", None) or node.arg)
        elif isinstance(node, ast.For) and any(isinstance(inside, ENDS) for inside in ast.walk(node)):
            self.ending.add(id(node.iter))
        elif isinstance(node, FUNCTIONS):
            self.bind_parameters(node)

    def bind_parameters(self, function):
        """Records where a parameter with the name of a function of CODE is used."""
        args = function.args
        names = CODE.intersection(arg.arg for arg in args.posonlyargs + args.args + args.kwonlyargs)
        if names and self.shadowing < MAX_SHADOWING:
            self.shadowing += 1
            body = function.body if isinstance(function.body, list) else [function.body]
            for statement in body:
                self.own.update(id(n) for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id in names)

    def assign(self, name, value):
        """Records what a name means after an assignment of an imported name, a module or a path."""
        if isinstance(value, ast.Name) and value.id in self.imported:
            self.imported[name] = self.imported[value.id]
        elif isinstance(value, ast.Attribute) and name not in CODE and self.imported_name(value):
            self.imported[name] = self.name(value)
        elif isinstance(value, ast.Call) and self.module(value):
            self.imported[name] = self.module(value)
        elif self.variable(value):
            self.imported[name] = self.imported[self.variable(value)]
        elif self.path(value):
            self.values[name] = self.path(value)

    def module(self, call):
        """Returns the module that a call imports, or None if its name is not constant or it imports none."""
        root = call.func
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and self.name(call.func).removeprefix("builtins.") in IMPORTERS and call.args:
            return constant(call.args[0])
        return None

    def variable(self, node):
        """Returns the imported name that an expression such as globals()["os"] means, or None."""
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call) and not node.value.args:
            key = constant(node.slice)
            if key in self.imported and getattr(node.value.func, "id", None) in VARIABLES:
                return key
        return None

    def path(self, node, depth=0):
        """Returns the path to which an expression evaluates, or None.

        If only the beginning of the path is constant, it returns the constant directories, and "*" for the rest.
        """
        if isinstance(node, ast.Call) and node.args and depth < MAX_DEPTH:
            joins = isinstance(node.func, ast.Attribute) and node.func.attr == "joinpath"
            if joins or self.name(node.func) in ("pathlib.Path", "os.path.join"):
                parts = ([node.func.value] if joins else []) + node.args
                return joined([self.path(part, depth + 1) for part in parts])
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and depth < MAX_DEPTH:
            return joined([self.path(node.left, depth + 1), self.path(node.right, depth + 1)])
        text, whole = beginning(node, self.values)
        return text[: 2 * MAX_NAME] if whole else directories(text)

    def name(self, node):
        """Returns the dotted name of a node, with its first part as imported, or "" if the node has no name.

        If the first part is not a name but another expression, the result begins with a dot: ".run" for make().run.
        """
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name) and parts and node.id in self.bound and node.id not in self.imported:
            parts.append("")  # as in commands.append(), where commands is a list of the program
        elif isinstance(node, ast.Name):
            parts += reversed(self.imported.get(node.id, node.id).split("."))
        elif parts and self.variable(node):
            parts += reversed(self.imported[self.variable(node)].split("."))
        elif parts:
            parts.append(isinstance(node, ast.Call) and self.module(node) or "")
        if parts and parts[-1]:
            for i in range(len(parts) - 1):
                if parts[i] in COMMON:
                    del parts[i + 1 :]
                    break
        return ".".join(reversed(parts))

    def visit_call(self, node):
        name = self.name(node.func)
        if name and name not in self.defined and id(node.func) not in self.own:
            self.calls.append({"name": name[:MAX_NAME], "line": node.lineno})
        name = name.removeprefix("builtins.")
        if name == "getattr" and len(node.args) > 1:
            self.visit_getattr(node)
        elif name == "vars" and node.args and self.imported_name(node.args[0]):
            self.sign("computed_attribute", node, self.imported_name(node.args[0]))
        elif name in IMPORTERS:
            module = self.module(node)
            if module:
                self.imports.append({"module": module[:MAX_NAME], "line": node.lineno})
            else:
                self.sign("computed_import", node)
        elif name.startswith("sys.modules.") and name != "sys.modules.keys":
            self.sign("computed_attribute", node, "sys.modules")
        elif name in ("bytes", "bytearray") and node.args and (number(node.args[0]) or 0) >= HUGE:
            self.sign("huge_value", node)
        elif name == "range" and id(node) not in self.ending and any((number(arg) or 0) >= HUGE for arg in node.args):
            self.sign("huge_range", node)
        for keyword in node.keywords:
            if keyword.arg in PICKLES and getattr(keyword.value, "value", None) is PICKLES[keyword.arg]:
                self.references.append({"name": "pickle.load", "line": node.lineno})
        self.visit_file_call(node, name)

    def visit_getattr(self, node):
        module, attribute = self.imported_name(node.args[0]), constant(node.args[1])
        if attribute and attribute.startswith("__"):
            self.attributes.append({"name": attribute[:MAX_NAME], "line": node.lineno})
        if not module:
            return
        if attribute:
            self.references.append({"name": (module + "." + attribute)[:MAX_NAME], "line": node.lineno})
        else:
            self.sign("computed_attribute", node, module)

    def imported_name(self, node):
        """Returns the dotted name of an imported module or of something in one, or "" for anything else."""
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and (root.id in self.imported or root.id == "__builtins__"):
            return self.name(node)
        if root is not node and self.variable(root):
            return self.name(node)
        return ""

    def visit_file_call(self, node, name):
        """Records the constant paths in a call of a file function, or of a method of such a path."""
        target = node.func.value if isinstance(node.func, ast.Attribute) else None
        if target is not None and self.path(target) and not name.startswith(("os.", "io.", "shutil.", "codecs.")):
            name = "pathlib.Path." + node.func.attr
            others = node.args[:1] if name.endswith(("name", "replace")) else []
            paths = [self.path(arg) for arg in [target] + others]
            mode = node.args[:1]
        else:
            named = [keyword.value for keyword in node.keywords if keyword.arg in PATH_KEYWORDS]
            paths, mode = [self.path(arg) for arg in node.args[:2] + named], node.args[1:2]
        writes = PATHS.get(name)
        if writes is None and name.startswith(READERS):
            writes, paths = False, paths[:1]
        elif writes is None and target is not None and node.func.attr in WRITERS:
            writes, paths = True, paths[:1]
        if writes is None:
            return
        if name.endswith("open"):
            mode += [keyword.value for keyword in node.keywords if keyword.arg in ("mode", "flags")]
            paths = paths[:1]
            text = constant(mode[0]) if mode else "r"
            writes = text is None or any(c in text for c in "wax+")
        for path in paths:
            if path:
                self.paths.append({"name": name, "path": path[:MAX_NAME], "write": writes, "line": node.lineno})

    def visit_name(self, node):
        name = getattr(node, "attr", None) or getattr(node, "id", None)
        if name.startswith("__") or name in FRAMES:
            self.attributes.append({"name": name[:MAX_NAME], "line": node.lineno})
        if id(node) in self.callees or not isinstance(node.ctx, ast.Load):
            return
        if isinstance(node, ast.Name):
            if name in CODE and name not in self.defined and id(node) not in self.own:
                self.references.append({"name": name, "line": node.lineno})
            elif name in self.imported:
                self.refer(node, self.imported[name])
                if self.imported[name] in self.modules:
                    self.passed.add(self.imported[name])
            return
        name = self.imported_name(node)
        if name:
            self.refer(node, name)

    def refer(self, node, name):
        """Records the use of an imported name as a value."""
        self.references.append({"name": name[:MAX_NAME], "line": node.lineno})
        if name == "sys.modules" and id(node) not in self.keys_only:
            self.sign("computed_attribute", node, name)

    def visit_passed(self):
        """Records the attributes of values that may be modules, because the program uses modules as values."""
        modules = sorted(self.passed)[:MAX_PASSED]
        for node in self.nodes:
            if len(self.references) > MAX_USES:
                return
            for attribute in self.attributes_of(node):
                for module in modules:
                    name = (module + "." + attribute)[:MAX_NAME]
                    self.references.append({"name": name, "line": node.lineno})

    def attributes_of(self, node):
        """Returns the attributes of an unknown value that a node names: value.x, vars(value)["x"], attrgetter("x")."""
        if isinstance(node, ast.Attribute):
            known = isinstance(node.value, ast.Name) and node.value.id in self.imported
            return [] if known else [node.attr]
        if isinstance(node, ast.Subscript):
            return filter(None, [constant(node.slice)])
        if isinstance(node, ast.Call) and self.name(node.func) in GETTERS:
            return filter(None, map(constant, node.args[:1]))
        return []

    def visit_subscript(self, node):
        if constant(node.slice) in ("__builtins__", "__import__"):
            self.attributes.append({"name": constant(node.slice), "line": node.lineno})
        name = self.name(node.value)
        if name == "sys.modules" or name.endswith(".__dict__") and self.imported_name(node.value):
            self.sign("computed_attribute", node, name)

    def visit_while(self, node):
        if not (isinstance(node.test, ast.Constant) and node.test.value):
            return
        for inside in ast.walk(node):
            if isinstance(inside, ENDS) or isinstance(inside, ast.Call) and self.name(inside.func) in EXITS:
                return
        self.sign("endless_loop", node)

    def visit_operation(self, node):
        if isinstance(node.op, ast.Mult):
            for count, value in ((node.left, node.right), (node.right, node.left)):
                if isinstance(value, (ast.List, ast.Tuple)) or isinstance(getattr(value, "value", None), (str, bytes)):
                    if (number(count) or 0) >= HUGE:
                        self.sign("huge_value", node)
        elif isinstance(node.op, ast.Pow) and number(node) == LARGEST:
            self.sign("huge_value", node)

    def sign(self, kind, node, name=""):
        self.signs.append({"kind": kind, "name": name[:MAX_NAME], "line": node.lineno})


DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
ENDS = (ast.Break, ast.Return, ast.Raise, ast.Yield, ast.YieldFrom, ast.Await)
EXITS = frozenset(("exit", "quit", "sys.exit", "os._exit"))

VISITORS = {
    ast.Call: Finder.visit_call,
    ast.Name: Finder.visit_name,
    ast.Attribute: Finder.visit_name,
    ast.Subscript: Finder.visit_subscript,
    ast.While: Finder.visit_while,
    ast.BinOp: Finder.visit_operation,
}


def joined(parts):
    """Returns the path that consists of parts. A part that is not known is None."""
    known = parts[: parts.index(None)] if None in parts else parts
    if not known:
        return None
    path = posixpath.join(*known)[: 2 * MAX_NAME]
    return path if len(known) == len(parts) else directories(path + "/")


def directories(text):
    """Returns the directories with which a path begins, and "*" for the rest. It returns None if there is none."""
    text = text[: 2 * MAX_NAME].rpartition("/")[0]
    return text + "/*" if text.strip("/") else None


MAX_DEPTH = 20  # nested operators in a constant expression


def constant(node):
    """Returns the constant string to which an expression evaluates, or None."""
    text, whole = beginning(node, {})
    return text[: 2 * MAX_NAME] if whole else None


def beginning(node, values, depth=0):
    """Returns the constant string with which the value of an expression begins, and whether that is all of it.

    The values of variables are in values. Strings are concatenated.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value, True
    if isinstance(node, ast.Name) and node.id in values:
        return values[node.id], True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [node.left, node.right]
    elif isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values]
    else:
        return "", False
    text = ""
    for part in parts:
        more, whole = beginning(part, values, depth + 1) if depth < MAX_DEPTH else ("", False)
        text += more
        if not whole or len(text) > 2 * MAX_NAME:
            return text, False
    return text, True


def number(node, depth=0):
    """Returns the constant integer to which an expression evaluates, at most LARGEST, or None."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return min(node.value, LARGEST)
    if not isinstance(node, ast.BinOp) or depth == MAX_DEPTH:
        return None
    left, right = number(node.left, depth + 1), number(node.right, depth + 1)
    if left is None or right is None or left < 0 or right < 0:
        return None
    if isinstance(node.op, ast.Mult):
        return min(left * right, LARGEST)
    if isinstance(node.op, ast.LShift):
        return LARGEST if left and left.bit_length() + right > LARGEST_BITS else min(left << right, LARGEST)
    if isinstance(node.op, ast.Pow):
        return LARGEST if left > 1 and left.bit_length() * right > LARGEST_BITS else min(left**right, LARGEST)
    return None


LARGEST_BITS = 10**7
LARGEST = 1 << LARGEST_BITS
