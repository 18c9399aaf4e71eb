"""Runs the calls and programs that a test requests: reads one JSON object per line, and prints one per line."""

import importlib, inspect, json, sys, traceback

for line in sys.stdin:
    request = json.loads(line)
    try:
        importlib.invalidate_caches()
        if request.get("program"):
            scope = {"inputs": request["kwargs"]}
            exec(request["program"], scope)
            response = {"value": scope["result"]}
        else:
            package = importlib.import_module("servers." + request["server"])
            function = getattr(package, request["function"])
            response = {"value": function(*request["args"], **request["kwargs"]), "doc": inspect.getdoc(function)}
    except BaseException as error:
        response = {"error": "%s: %s" % (type(error).__name__, error), "trace": traceback.format_exc()}
    print(json.dumps(response), flush=True)
