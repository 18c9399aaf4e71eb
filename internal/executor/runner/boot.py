import os, sys
if sys.path[:1] == [""]: del sys.path[0]
def exactly(count):
    data = b""
    while len(data) < count:
        data += os.read(0, count - len(data)) or sys.exit(3)
    return data
import builtins, json, marshal
boot = json.loads(exactly(int.from_bytes(exactly(4), "big")))
compiled = exactly(boot["compiled"]["bytes"])
if boot["compiled"]["interpreter"] == sys.version:
    codes = marshal.loads(compiled)
    compiled = b""
else:
    codes = [compile(text, "<codefleet/%s.py>" % name, "exec", dont_inherit=True) for name, text in boot["sources"]]
    compiled = marshal.dumps(codes)
package = sys.modules["codefleet"] = type(sys)("codefleet")
package.__path__ = []
own = dict(vars(builtins))  # programs replace functions in the module
for (name, _), code in zip(boot.pop("sources"), codes):
    module = type(sys)("codefleet." + name)
    sys.modules[module.__name__] = module
    setattr(package, name, module)
    module.__builtins__ = own
    exec(code, module.__dict__)
del codes, code
package.runner.main(boot, compiled)
