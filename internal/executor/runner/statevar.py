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
        self.replace(data)
        self.saved = True

    def replace(self, data):
        """Writes the file. After an error, such as that of a full disk, the file is as it was."""
        new = os.path.join(os.path.dirname(self.path), ".state." + os.urandom(8).hex())
        try:
            with open(new, "xb") as file:
                file.write(data)
            if os.path.exists(self.path):
                os.chmod(new, stat.S_IMODE(os.stat(self.path).st_mode))
            os.replace(new, self.path)
        finally:
            if os.path.exists(new):
                os.remove(new)


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
    in_function = False  # whether a function in which the variable is not local reads it
    todo = [(tree, MODULE)]
    while todo:  # without recursion, because expressions may be nested deeply
        node, scope = todo.pop()
        if not isinstance(node, ast.Name):
            todo.extend(reversed(list(parts(node, scope))))
        elif node.id != NAME:
            continue
        elif isinstance(node.ctx, ast.Load):
            if isinstance(scope, ClassScope) and scope.assigned:
                continue
            if around(scope) is MODULE:
                return True
            in_function = True
        elif scope is MODULE:
            return False
        elif isinstance(scope, ClassScope):
            scope.assigned = True
    return in_function


# The scopes of code, apart from those of classes. In FUNCTION, the variable is the global one.
MODULE, FUNCTION = "module", "function"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
VALUE_FIRST = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension)


class ClassScope:
    """The scope of a class. An attribute that it assigns hides the global variable from the class's own code only."""

    def __init__(self, scope):
        self.around = around(scope)
        self.assigned = False


def around(scope):
    """Returns the scope whose variables the functions and comprehensions in a scope see."""
    return scope.around if isinstance(scope, ClassScope) else scope


def parts(node, scope):
    """Yields what is evaluated of a node, in this order, with its scope. A Name stands for any other way to assign."""
    inside, body = scope, []
    if isinstance(node, FUNCTIONS):
        nodes = [*getattr(node, "decorator_list", []), node.args]
        if not local(node):
            inside, body = FUNCTION, statements(node)
    elif isinstance(node, ast.ClassDef):
        nodes = [*node.decorator_list, *node.bases, *node.keywords]
        inside, body = ClassScope(scope), node.body
    elif isinstance(node, COMPREHENSIONS):
        first = node.generators[0]
        nodes = [first.iter]
        if not any(binds(name) for part in node.generators for name in ast.walk(part.target)):
            others = [part for part in ast.iter_child_nodes(node) if part is not first]
            inside, body = around(scope), [first.target, *first.ifs, *reversed(others)]
    elif isinstance(node, ast.ExceptHandler):
        nodes, body = [node.type] if node.type else [], node.body
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.value:
        nodes = [node.annotation]
    elif isinstance(node, VALUE_FIRST):
        first = node.iter if hasattr(node, "iter") else node.value
        nodes = sorted(ast.iter_child_nodes(node), key=lambda part: part is not first)
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        nodes = [ast.Name(node.target.id, ast.Load()), node.value]
    else:
        nodes = ast.iter_child_nodes(node)
    for part in nodes:
        yield part, scope
    if binds(node):
        yield ast.Name(NAME, ast.Store()), scope
    for part in body:
        yield part, inside


def local(function):
    """Returns whether the variable is local in a function."""
    todo, stored = [function.args, *statements(function)], False
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Global) and NAME in node.names:
            return False
        if binds(node) or isinstance(node, ast.arg) and node.arg == NAME:
            stored = True
        if isinstance(node, ast.comprehension):
            todo += [node.iter, *node.ifs]  # its target is local in the comprehension
        elif not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            todo.extend(ast.iter_child_nodes(node))
    return stored


def statements(function):
    """Returns the body of a function, or of a lambda as a list."""
    return [function.body] if isinstance(function, ast.Lambda) else function.body


def binds(node):
    """Returns whether a node other than an argument assigns or deletes the name."""
    if isinstance(node, ast.Name):
        return node.id == NAME and not isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.alias):
        return (node.asname or node.name.partition(".")[0]) == NAME
    return NAME in (getattr(node, "name", None), getattr(node, "rest", None))  # of a function or pattern, for example
