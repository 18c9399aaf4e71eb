"""What a program imports and calls, for the decision whether it may run."""

import ast

LIMIT = 1000  # elements per list
NAME = 200  # characters per name


def facts(tree, code):
    """Returns imports, calls and double-underscore names of a parsed program, with their lines."""
    imports, calls, attributes = [], [], []
    imported = {}  # name in the program -> imported name
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                imports.append({"module": alias.name, "line": node.lineno})
                top = alias.name.partition(".")[0]
                imported[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            names = [alias.name for alias in node.names]
            imports.append({"module": module, "names": names[:LIMIT], "line": node.lineno})
            for alias in node.names:
                imported[alias.asname or alias.name] = module + "." + alias.name
    for node in nodes:
        if isinstance(node, ast.Call):
            name = dotted(node.func, imported)
            if name:
                calls.append({"name": name[:NAME], "line": node.lineno})
        name = getattr(node, "attr", None) or getattr(node, "id", None)
        if isinstance(name, str) and name.startswith("__"):
            attributes.append({"name": name[:NAME], "line": node.lineno})
    found = {"lines": code.count("\n") + 1}
    for key, uses in (("imports", imports), ("calls", calls), ("attributes", attributes)):
        found[key] = sorted(uses[:LIMIT], key=lambda use: use["line"])
        if len(uses) > LIMIT:
            found["truncated"] = True
    return found


def dotted(node, imported):
    """Returns the dotted name of a callee, with its first part as imported, or "" if the callee has no name.

    The name of a method of an expression's value begins with a dot: ".run" for make().run().
    """
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(imported.get(node.id, node.id))
    elif parts:
        parts.append("")
    return ".".join(reversed(parts))
