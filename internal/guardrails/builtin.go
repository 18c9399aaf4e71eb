package guardrails

import (
	"path"
	"slices"
	"strings"
)

// rule is a built-in rule. find returns findings without the rule's name and hint.
type rule struct {
	name, hint string
	find       func(Program) []Finding
}

// builtin are the built-in rules. docs/guardrails.md lists them.
var builtin = []rule{
	{"dynamic_code", "write the code out, so that it can be read and judged", dynamicCode},
	{"process", "use a Python module or a tool instead of another process", processes},
	{"network", "ask for the hosts in the task's network field, or call a tool", network},
	{"files", "write below /workspace or /tmp, and read only your own files", files},
	{"resources", "end the loop, or work in smaller pieces", resources},
	{"hidden", "name what you use", hidden},
	{"native_code", "use a Python module instead of native code", nativeCode},
	{"too_complex", "split the program into smaller tasks", tooComplex},
}

// uses returns a finding for each call of, or reference to, one of names. A name that ends in "*" is a prefix.
func uses(p Program, message string, names ...string) []Finding {
	var found []Finding
	for _, u := range p.uses {
		if slices.ContainsFunc(names, func(n string) bool { return matches(n, u.Name) }) {
			found = append(found, Finding{Line: u.Line, Message: message + " (" + u.Name + ")"})
		}
	}
	return found
}

func matches(pattern, name string) bool {
	prefix, ok := strings.CutSuffix(pattern, "*")
	return name == pattern || ok && strings.HasPrefix(name, prefix)
}

// imports returns a finding for each import of one of modules, or of a module in them.
func imports(p Program, message string, modules ...string) []Finding {
	var found []Finding
	for _, i := range p.Imports {
		if m, ok := importOf(i, modules); ok {
			found = append(found, Finding{Line: i.Line, Message: message + " (" + m + ")"})
		}
	}
	return found
}

func dynamicCode(p Program) []Finding {
	found := uses(p, "runs code that is put together while it runs",
		"eval", "exec", "compile", "__import__", "breakpoint", "runpy.*", "code.Interact*", "code.interact",
		"codeop.*", "marshal.loads", "marshal.load", "pickle.loads", "pickle.load", "pickle.Unpickler",
		"_pickle.*", "dill.load*", "cloudpickle.load*", "types.FunctionType", "types.CodeType",
		"importlib.util.module_from_spec", "importlib.machinery.Source*", "zipimport.*", "shelve.open",
		"pandas.read_pickle", "joblib.load", "yaml.unsafe_load*", "yaml.UnsafeLoader", "yaml.Loader", "yaml.CLoader",
		"cProfile.run*", "profile.run*", "pdb.run*")
	for _, a := range p.Attributes {
		if slices.Contains(internals, a.Name) {
			found = append(found, Finding{Line: a.Line, Message: "reaches into Python's internals (" + a.Name + ")"})
		}
	}
	return found
}

// internals are attributes through which programs reach modules that they have not imported.
var internals = []string{
	"__subclasses__", "__globals__", "__builtins__", "__code__", "__base__", "__import__", "__loader__", "__closure__",
	"__getattribute__", "f_globals", "f_builtins",
}

func processes(p Program) []Finding {
	return slices.Concat(
		imports(p, "starts other processes", "subprocess", "pty", "_posixsubprocess"),
		uses(p, "starts or stops other processes",
			"os.system", "os.popen", "os.exec*", "os.spawn*", "os.posix_spawn*", "os.fork*", "os.kill*", "pty.*",
			"subprocess.*", "asyncio.create_subprocess*", ".subprocess_exec", ".subprocess_shell", "commands.*",
			"platform.popen", "webbrowser.*",
			"multiprocessing.Process", "multiprocessing.Pool", "multiprocessing.pool.Pool",
			"concurrent.futures.ProcessPoolExecutor"))
}

func network(p Program) []Finding {
	if p.Network {
		return nil
	}
	const message = "uses the network, which this task cannot reach"
	var found []Finding
	for _, use := range p.Paths {
		if slices.ContainsFunc(remote, func(scheme string) bool { return strings.HasPrefix(use.Path, scheme) }) {
			found = append(found, Finding{Line: use.Line, Message: message + " (" + use.Name + ")"})
		}
	}
	return slices.Concat(found,
		imports(p, message,
			"socket", "_socket", "socketserver", "http.client", "http.server", "urllib.request", "urllib3", "requests",
			"httpx", "aiohttp", "websocket", "websockets", "ftplib", "smtplib", "poplib", "imaplib", "nntplib",
			"telnetlib", "xmlrpc", "paramiko", "pycurl", "grpc", "boto3"),
		uses(p, message,
			"asyncio.open_connection", "asyncio.start_server", "urllib.request.*", "ssl.get_server_certificate",
			"logging.handlers.HTTPHandler", "logging.handlers.SMTPHandler", "logging.handlers.SocketHandler",
			"logging.handlers.DatagramHandler"))
}

// remote are the beginnings of the URLs that libraries accept in place of paths.
var remote = []string{"http://", "https://", "ftp://", "s3://", "gs://"}

// writable are the directories and devices to which programs may write.
var writable = []string{"/workspace", "/tmp", "/dev/shm", "/var/tmp", "/dev/null", "/dev/stdout", "/dev/stderr"}

// private are paths with data of the system or of other users.
var private = []string{
	"/proc", "/sys", "/etc/shadow", "/etc/passwd", "/etc/sudoers", "/root", "/dev/mem", "~/.ssh", "~/.aws", "~/.kube",
	"~/.config", "~/.netrc", "/var/run", "/run",
}

func files(p Program) []Finding {
	var found []Finding
	for _, use := range p.Paths {
		clean := path.Clean(use.Path)
		absolute := strings.HasPrefix(clean, "/") || strings.HasPrefix(clean, "~")
		switch {
		case use.Write && (absolute && !within(writable, clean, "/") || strings.HasPrefix(clean, "..")):
			found = append(found, Finding{
				Line: use.Line, Message: "changes a path outside the workspace (" + use.Path + ")",
			})
		case within(private, clean, "/"):
			found = append(found, Finding{Line: use.Line, Message: "reads data of the system (" + use.Path + ")"})
		}
	}
	return found
}

func resources(p Program) []Finding {
	return signs(p, map[string]string{
		"endless_loop": "contains a loop that never ends",
		"huge_range":   "counts to a billion or more",
		"huge_value":   "computes a huge value",
	})
}

func hidden(p Program) []Finding {
	p.Signs = slices.DeleteFunc(slices.Clone(p.Signs), func(s Sign) bool { return within(computing, s.Name, ".") })
	found := signs(p, map[string]string{
		"computed_attribute": "uses a function whose name is not written out",
		"computed_import":    "imports a module whose name is not written out",
	})
	for _, i := range p.Imports {
		if slices.Contains(i.Names, "*") && slices.Contains(unclearIfStar, i.Module) {
			found = append(found, Finding{Line: i.Line, Message: "imports every name of " + i.Module})
		}
	}
	return slices.Concat(found,
		uses(p, "looks at Python's internals",
			"sys._getframe", "sys._current_frames", "gc.get_objects", "gc.get_referrers"),
		uses(p, "finds functions by a text", "pkgutil.resolve_name", "pydoc.locate"))
}

// unclearIfStar are the modules from which a program must not import all names, because the rules could not tell that
// a function comes from them.
var unclearIfStar = []string{
	"os", "subprocess", "sys", "builtins", "shutil", "socket", "importlib", "ctypes", "posix", "pickle", "_pickle",
	"marshal", "dill", "runpy", "code", "multiprocessing", "pty",
}

// computing are modules whose functions programs often select by a computed name, as in getattr(np, name). These do not
// start processes or load code.
var computing = []string{
	"math", "cmath", "statistics", "random", "string", "datetime", "time", "decimal", "fractions", "numpy", "scipy",
	"sklearn", "matplotlib", "seaborn", "plotly", "polars", "torch",
}

func nativeCode(p Program) []Finding {
	return slices.Concat(
		imports(p, "runs native code", "ctypes", "cffi", "_ctypes", "posix", "numpy.ctypeslib"),
		uses(p, "runs native code", "numpy.ctypeslib.*"))
}

func tooComplex(p Program) []Finding {
	if !p.Truncated {
		return nil
	}
	return []Finding{{Message: "is too large to judge as a whole"}}
}

// signs returns a finding for each sign whose kind is in messages.
func signs(p Program, messages map[string]string) []Finding {
	var found []Finding
	for _, s := range p.Signs {
		message, ok := messages[s.Kind]
		if !ok {
			continue
		}
		if s.Name != "" {
			message += " (of " + s.Name + ")"
		}
		found = append(found, Finding{Line: s.Line, Message: message})
	}
	return found
}
