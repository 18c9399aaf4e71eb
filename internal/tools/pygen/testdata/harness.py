"""Runs what a test asks for: one JSON object a line in, one out."""

import importlib, inspect, json, sys, traceback

for line in sys.stdin:
    ask = json.loads(line)
    try:
        importlib.invalidate_caches()
        package = importlib.import_module("servers." + ask["server"])
        function = getattr(package, ask["function"])
        answer = {"value": function(*ask["args"], **ask["kwargs"]), "doc": inspect.getdoc(function), "signature": str(inspect.signature(function))}
    except BaseException as error:
        answer = {"error": "%s: %s" % (type(error).__name__, error), "trace": traceback.format_exc()}
    print(json.dumps(answer), flush=True)
