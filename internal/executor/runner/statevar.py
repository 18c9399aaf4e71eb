"""The program's variable `state`: a state document, loaded before the program runs, and saved after it succeeded."""

import ast
import json
import os
import stat

from codefleet import jsonable

NAME = "state"
LIMIT = 4 << 20  # bytes of a state document; statedoc.MaxSize on the host
LEVELS = 500  # of arrays and objects: strictjson.MaxDepth on the host
YAML_DIGITS = 308  # of an integer: YAML reads large ones as floats
REPLACE = "replace the document with a JSON object, or assign `state` in the program"
USE_STRINGS = "use strings as keys"
USE_FILES = "store numbers, strings, booleans, lists and dictionaries; put anything else into a file"
STORE_LESS = "put large data into files of the workspace, and their names into the document"
USE_ONE = "change a YAML document in one way only: through `state`, or as a file"
HINTS = (REPLACE, USE_STRINGS, USE_FILES, STORE_LESS, USE_ONE)


class Invalid(Exception):
    """The document, or what the program left in the variable, is not valid. hint says what to do."""

    def __init__(self, message, hint):
        super().__init__(message)
        self.hint = hint


class Variable:
    """The variable. file is the document's path in the workspace; content is its JSON, or None if the file is JSON."""

    def __init__(self, workspace, file, content, save):
        self.file, self.save = file, save
        # Without links, and absolute, because programs change the working directory.
        self.path = os.path.join(os.path.realpath(workspace), file)
        self.content = content
        self.loaded = b""  # the file, as loaded
        self.before = {}  # JSON of each value, as loaded
        self.saved = False

    def load(self):
        """Returns the variable's first value: an empty dictionary if the document does not exist."""
        self.loaded = self.read()
        value = self.document(self.loaded)
        try:
            self.before = {key: json.dumps(member, sort_keys=True) for key, member in value.items()}
        except RecursionError as error:
            raise Invalid("%s cannot be read: %s" % (self.file, error), REPLACE) from None
        return value

    def read(self):
        """Returns the file's bytes: none if it does not exist."""
        try:
            if os.path.realpath(self.path) != self.path:  # the fleet follows no links
                raise Invalid("%s is a link, not a file" % self.file, REPLACE)
            status = os.stat(self.path)
            if not stat.S_ISREG(status.st_mode):
                raise Invalid("%s is not a regular file" % self.file, REPLACE)
            if status.st_size > LIMIT:
                raise Invalid("%s is %d bytes; the limit is %d" % (self.file, status.st_size, LIMIT), REPLACE)
            with open(self.path, "rb") as file:
                return file.read(LIMIT + 1)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise Invalid("%s cannot be read: %s" % (self.file, error.strerror), REPLACE) from None

    def document(self, data):
        """Returns the document, of which data is the file."""
        if self.content is not None:
            data = self.content
        try:
            value = jsonable.load_document(data, LEVELS) if data else {}
        except (ValueError, RecursionError) as error:
            raise Invalid("%s is not JSON: %s" % (self.file, error), REPLACE) from None
        if not isinstance(value, dict):
            raise Invalid("%s is not a JSON object, as in {\"step\": 2}" % self.file, REPLACE)
        return value

    def store(self, value):
        """Writes the top-level keys that the program has changed, if the variable is still a dictionary."""
        if not self.save or not isinstance(value, dict):
            return
        changed, kept = {}, set()
        digits = jsonable.MAX_DIGITS if self.content is None else YAML_DIGITS
        for key, member in value.items():
            if not isinstance(key, str):
                raise Invalid("state: the key %.80r is not a string" % (key,), USE_STRINGS)
            key = str.__str__(key)  # a subclass may have keys that differ although their text is the same
            kept.add(key)
            try:
                text = json.dumps(member, sort_keys=True, allow_nan=False, default=encodable)
                if self.before.get(key) != text:
                    jsonable.check(key, 0)
                    changed[key] = jsonable.load_kept(text, LEVELS - 1, digits)
            except (TypeError, ValueError, RecursionError) as error:
                raise Invalid("state[%.80r] cannot be saved as JSON: %s" % (key, reason(error)), USE_FILES) from None
        removed = [key for key in self.before if key not in kept]
        if not changed and not removed:
            return
        data = self.read()  # the program may have written the file, too
        if self.content is not None and data != self.loaded:
            raise Invalid("the program has changed %s both as a file and through `state`" % self.file, USE_ONE)
        document = self.document(data)
        document.update(changed)
        for key in removed:
            document.pop(key, None)
        try:
            data = encoded(document)
        except (ValueError, RecursionError) as error:
            raise Invalid("%s cannot be saved as JSON: %s" % (self.file, error), USE_FILES) from None
        if len(data) > LIMIT:
            raise Invalid("state: %s would be %d bytes; the limit is %d" % (self.file, len(data), LIMIT), STORE_LESS)
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path, "wb") as file:
            file.write(data)
        self.saved = True


def encoded(document):
    """Returns a document as JSON in bytes, indented if that fits into LIMIT."""
    lines = bytearray()
    for part in json.JSONEncoder(ensure_ascii=False, indent=2).iterencode(document):
        lines += part.encode("utf-8", "backslashreplace")
        if len(lines) >= LIMIT:
            text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
            return text.encode("utf-8", "backslashreplace") + b"\n"
    return bytes(lines) + b"\n"


def reason(error):
    """Returns why json could not encode a value. Python's own messages would not help here."""
    message = str(error)
    if "set_int_max_str_digits" in message:
        return "an integer has more than %d digits" % jsonable.MAX_DIGITS
    if message.startswith("'<' not supported"):
        return "a dictionary has keys of different types"
    return message


def encodable(value):
    """Converts numpy's numbers and arrays, and dates, to values that json can encode."""
    for method in ("tolist", "isoformat"):
        if hasattr(value, method):
            return getattr(value, method)()
    raise TypeError("a value of type %s has no JSON form" % type(value).__name__)


def used(tree):
    """Returns whether a program reads the variable before it assigns it. If not, the program uses its own variable."""
    uses = Uses()
    uses.visit(tree)
    if uses.assigned is None:
        return uses.read is not None or uses.read_in_function
    return uses.read is not None and uses.read < uses.assigned


class Uses(ast.NodeVisitor):
    """Finds where a program first reads the global variable, and where it first assigns it."""

    def __init__(self):
        self.read = self.assigned = None  # (line, column)
        self.read_in_function = False  # whether a function in which the variable is not local reads it
        self.depth = 0  # nested functions

    def visit_Name(self, node):
        if node.id != NAME:
            return
        if isinstance(node.ctx, ast.Load):
            self.reads(node.lineno, node.col_offset)
        else:
            self.assigns(node.lineno, node.col_offset)

    def reads(self, *at):
        if self.depth:
            self.read_in_function = True
        else:
            self.read = min(self.read or at, at)

    def assigns(self, *at):
        if not self.depth:
            self.assigned = min(self.assigned or at, at)

    def visit_Assign(self, node):
        self.visit(node.value)
        for target in node.targets:  # they are assigned after the value was evaluated
            for name in ast.walk(target):
                if not isinstance(name, ast.Name) or name.id != NAME:
                    continue
                if isinstance(name.ctx, ast.Store):
                    self.assigns(node.end_lineno, node.end_col_offset)
                else:  # as in state["step"] = 2
                    self.reads(name.lineno, name.col_offset)

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.visit(node.value)
            if isinstance(node.target, ast.Name) and node.target.id == NAME:
                self.assigns(node.end_lineno, node.end_col_offset)
                return
        if not isinstance(node.target, ast.Name):
            self.visit(node.target)

    def visit_AugAssign(self, node):
        if isinstance(node.target, ast.Name) and node.target.id == NAME:
            self.reads(node.lineno, node.col_offset)
        else:
            self.visit(node.target)
        self.visit(node.value)

    def visit_alias(self, node):
        if (node.asname or node.name.partition(".")[0]) == NAME:
            self.assigns(0, 0)

    def visit_ClassDef(self, node):
        if node.name == NAME:
            self.assigns(node.lineno, node.col_offset)
        self.generic_visit(node)

    def visit_FunctionDef(self, node):
        if node.name == NAME:
            self.assigns(node.lineno, node.col_offset)
        for outside in node.decorator_list:
            self.visit(outside)
        self.function(node, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node):
        self.function(node, [node.body])

    def function(self, node, body):
        if local(node, body):
            return
        self.depth += 1
        for inside in body:
            self.visit(inside)
        self.depth -= 1

    def comprehension(self, node):
        targets = [name for part in node.generators for name in ast.walk(part.target)]
        if not any(isinstance(name, ast.Name) and name.id == NAME for name in targets):
            self.generic_visit(node)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension


def local(node, body):
    """Returns whether the variable is local in a function."""
    arguments = [name.arg for name in ast.walk(node.args) if isinstance(name, ast.arg)]
    if NAME in arguments:
        return True
    stored = False
    for inside in body:
        for name in ast.walk(inside):
            if isinstance(name, ast.Global) and NAME in name.names:
                return False
            if isinstance(name, ast.Name) and name.id == NAME and not isinstance(name.ctx, ast.Load):
                stored = True
    return stored
