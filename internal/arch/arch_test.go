package arch_test

import (
	"go/parser"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/sourcetest"
)

const module = "github.com/codefleet/codefleet"

// imports lists which packages of this module each package may import. A pattern that ends in /... matches
// everything below. Every package must be in this table, except the exempt ones.
var imports = map[string][]string{
	"schemas": {"internal/violation"},
	"servers": nil,

	// The leaves import no other leaf.
	"internal/executor":              {"internal/executor/runner", "internal/executor/hostdir"},
	"internal/executor/drivers":      nil,
	"internal/executor/gvisor":       {"internal/executor", "internal/executor/drivers", "internal/executor/hostdir"},
	"internal/executor/microsandbox": {"internal/executor", "internal/executor/drivers", "internal/executor/hostdir"},
	"internal/executor/executortest": {"internal/executor", "internal/executor/runner"},
	"internal/executor/runner":       nil,
	"internal/executor/hostdir":      nil,
	"internal/text":                  nil,
	"internal/names":                 nil,
	"internal/clock":                 nil,
	"internal/mutex":                 nil,
	"internal/limited":               nil,
	"internal/filelock":              {"internal/clock"},
	"internal/errcode":               nil,
	"internal/metrics":               nil,
	"internal/arith":                 nil,
	"internal/removal":               nil,
	"internal/strictjson":            nil,
	"internal/violation":             nil,
	"internal/patterns":              nil,
	"internal/expression":            {"internal/patterns"},
	"internal/form":                  {"internal/patterns", "internal/violation"},
	"internal/cron":                  nil,
	"internal/workflow": {
		"schemas", "internal/expression", "internal/form", "internal/statedoc", "internal/tools/pygen",
	},
	"internal/workflow/engine":    {"schemas", "internal/jobs", "internal/workflow"},
	"internal/guardrails":         {"internal/expression", "internal/patterns"},
	"internal/guardrails/privacy": nil,

	// Workspaces, from the stored bytes up.
	"internal/objects":                  nil,
	"internal/state/s3":                 {"internal/objects"},
	"internal/state/mem":                {"internal/objects"},
	"internal/state/heads":              {"internal/objects"},
	"internal/state/heads/createonly":   {"internal/objects", "internal/state/heads"},
	"internal/state/heads/natsheads":    {"internal/objects", "internal/state/heads", "internal/jobs"},
	"internal/state/heads/singlewriter": {"internal/objects", "internal/state/heads"},
	"internal/state/ignore":             nil,
	"internal/state/format":             {"internal/objects"},
	"internal/state/content":            {"internal/objects", "internal/state/format"},
	"internal/state/tree": {
		"internal/objects", "internal/state/content", "internal/state/format",
		"internal/state/ignore",
	},
	"internal/state/repo": {"internal/objects", "internal/state/content", "internal/state/format", "internal/statedoc"},
	"internal/state": {
		"internal/objects", "internal/state/content", "internal/state/format", "internal/state/ignore",
		"internal/state/repo",
		"internal/state/tree",
	},
	"internal/state/history": {
		"internal/objects", "internal/state/content", "internal/state/format",
		"internal/state/repo",
	},
	"internal/state/maintenance": {
		"internal/objects", "internal/state/format", "internal/state/history",
		"internal/state/repo",
	},
	"internal/state/mirror": {
		"internal/objects", "internal/state/content", "internal/state/format",
		"internal/state/repo",
	},
	"internal/state/statetest": {"internal/objects", "internal/state", "internal/state/..."},

	"internal/tools":            {"servers", "internal/objects"},
	"internal/tools/mcp":        {"internal/tools"},
	"internal/tools/pygen":      {"internal/tools"},
	"internal/tools/broker":     {"internal/patterns", "internal/tools", "internal/violation"},
	"internal/tools/builtin":    {"internal/arith"},
	"internal/tools/registered": {"internal/tools", "internal/tools/pygen"},
	"internal/tools/toolstest":  {"internal/tools/...", "internal/tools", "servers"}, // tests only

	// Selection of tools, and the writers of programs.
	"internal/skills":          {"internal/objects", "internal/tools"},
	"internal/selection":       {"internal/openai", "internal/selection/terms", "internal/selection/gloss"},
	"internal/selection/terms": nil,
	"internal/selection/gloss": nil,
	"internal/codegen":         {"internal/openai"},
	"internal/codegen/rules":   {"internal/arith", "internal/codegen", "internal/strictjson"},
	"internal/openai":          nil,

	"internal/allowlist":  nil,
	"internal/egress":     {"internal/allowlist"},
	"internal/egress/gen": nil, // go generate only
	"internal/sse":        nil,
	"internal/httpserve":  nil,
	"internal/pylayer":    {"internal/executor/hostdir", "internal/image", "internal/objects"},
	"internal/image":      {"internal/executor/hostdir"},

	"internal/statedoc": {"internal/state/ignore"},
	"internal/dirsync":  {"internal/state/ignore"},
	"internal/config": {
		"servers", "internal/allowlist", "internal/executor/drivers", "internal/guardrails",
		"internal/guardrails/privacy", "internal/statedoc",
	},
	"internal/jobs":     {"schemas", "internal/allowlist", "internal/statedoc"},
	"internal/apierror": {"internal/jobs"},
	"internal/automation": {
		"schemas", "internal/cron", "internal/egress", "internal/expression", "internal/jobs",
		"internal/workflow/engine",
	},
	"internal/pipeline": {
		"internal/statedoc", "schemas", "plugin", "internal/pluginhost", "internal/jobs", "internal/tools/...",
		"internal/toolsearch", "internal/selection", "internal/codegen", "internal/codegen/rules",
		"internal/executor", "internal/executor/drivers", "internal/state", "internal/egress",
		"internal/allowlist", "internal/guardrails", "internal/guardrails/privacy", "internal/skills",
	},

	"internal/toolsearch": {
		"internal/jobs", "internal/tools", "internal/tools/broker", "internal/selection",
		"internal/codegen", "internal/codegen/rules",
	},
	"internal/toolbox": {
		"servers", "internal/jobs", "internal/tools/...", "internal/tools", "internal/selection",
		"internal/skills", "internal/toolsearch",
	},

	"internal/environments": {
		"internal/config", "internal/objects", "internal/executor", "internal/executor/hostdir", "internal/image",
		"internal/pylayer",
	},

	"internal/telemetry": nil,
	"internal/embedded":  nil,
	"internal/arch":      nil,
	"internal/logtest":   nil,

	"internal/pythontest": nil,
	"internal/sourcetest": nil, // for tests that read the source

	// The edges, which convert settings and requests into values.
	"internal/ingest/ingesttest": {
		"internal/logtest", "schemas", "client", "internal/jobs", "internal/ingest",
		"internal/embedded", "internal/skills", "internal/state", "internal/state/mem",
	},

	"internal/ingest": {
		"schemas", "internal/automation", "internal/form", "internal/httpserve", "internal/jobs",
		"internal/apierror",
		"internal/objects", "internal/state", "internal/state/history", "internal/state/maintenance",
		"internal/state/mirror", "internal/statedoc", "internal/tools", "internal/selection", "internal/skills",
		"internal/workflow/engine",
	},
	"internal/bridge": {"client", "internal/form", "internal/httpserve"},
	"internal/page":   {"client", "schemas", "internal/form", "internal/workflow"},
	"internal/assembly": {
		"client", "internal/assembly/...", "internal/bridge", "internal/config", "internal/dirsync", "internal/egress",
		"internal/environments", "internal/executor", "internal/executor/drivers", "internal/filelock",
		"internal/form", "internal/guardrails", "internal/guardrails/privacy", "internal/httpserve", "internal/ingest",
		"internal/jobs", "internal/page", "internal/pipeline", "internal/pluginhost", "internal/state",
		"internal/telemetry", "internal/worker",
	},
	"internal/assembly/queue": {
		"schemas", "internal/allowlist", "internal/config", "internal/jobs", "internal/telemetry",
	},
	"internal/assembly/storage": {
		"schemas", "internal/assembly/queue", "internal/config", "internal/executor",
		"internal/jobs", "internal/objects", "internal/state/...", "internal/state", "internal/telemetry",
	},
	"internal/assembly/sandbox": {"internal/config", "internal/executor", "internal/executor/..."},
	"internal/assembly/models": {
		"internal/config", "internal/codegen", "internal/form", "internal/guardrails/privacy", "internal/selection",
		"internal/tools", "internal/toolsearch",
	},
	"internal/assembly/tooling": {
		"internal/assembly/models", "internal/config", "internal/egress", "internal/executor", "internal/objects",
		"internal/pipeline", "internal/skills", "internal/telemetry", "internal/toolbox", "internal/tools",
		"internal/tools/...",
	},
	"internal/process": {
		"internal/assembly", "internal/assembly/queue", "internal/bridge", "internal/config",
		"internal/httpserve",
		"internal/jobs", "internal/objects", "internal/state", "internal/telemetry", "internal/worker",
	},
	"internal/worker": {
		"schemas", "internal/automation", "internal/dirsync", "internal/executor", "internal/executor/hostdir",
		"internal/jobs", "internal/metrics", "internal/pipeline", "internal/state", "internal/state/history",
		"internal/state/maintenance", "internal/state/mirror", "internal/tools/broker", "internal/toolsearch",
		"internal/workflow/engine",
	},
	"internal/up":    {"client", "internal/..."},
	"internal/bench": {"schemas", "client", "internal/..."},

	"internal/faulttest": {"schemas", "client", "internal/..."},
	"internal/up/uptest": {"client", "internal/assembly", "internal/config", "internal/telemetry", "internal/up"},

	"internal/pluginhost": {"schemas", "plugin"},

	"client": {
		"schemas", "internal/jobs", "internal/apierror", "internal/dirsync", "internal/tools",
		"internal/sse",
	},
	"plugin":            {"schemas"},
	"plugin/workermain": {"schemas", "client", "plugin", "internal/..."},
}

// homes lists the packages that may import each heavy module. A pattern that ends in /... matches the module and
// everything below. Every package may import OpenTelemetry's API.
var homes = map[string][]string{
	"github.com/nats-io/nats.go/...":     {"internal/jobs", "internal/embedded"},
	"github.com/nats-io/nats-server/...": {"internal/embedded"},
	"github.com/minio/minio-go/...":      {"internal/state/s3"},
	"github.com/gofiber/fiber/...":       {"internal/embedded"},
	"github.com/versity/versitygw/...":   {"internal/embedded"},
	"github.com/modelcontextprotocol/go-sdk/...": {
		"internal/tools/mcp", "internal/tools/builtin",
		"internal/tools/toolstest", "internal/faulttest", "internal/bench", "internal/bridge", "test/bench",
	},
	"github.com/google/jsonschema-go/...": {
		"client", "internal/ingest", "internal/tools/builtin", "internal/bridge",
	},
	"gonum.org/v1/gonum/...":                     {"test/glossgen"},
	"github.com/openai/openai-go/...":            {"internal/openai"},
	"github.com/tiktoken-go/tokenizer/...":       {"internal/codegen"},
	"go.opentelemetry.io/otel/sdk/...":           {"internal/telemetry"},
	"go.opentelemetry.io/otel/exporters/...":     {"internal/telemetry"},
	"go.opentelemetry.io/contrib/bridges/...":    {"internal/telemetry"},
	"github.com/prometheus/client_golang/...":    {"internal/telemetry"},
	"github.com/google/go-containerregistry/...": {"internal/image"},
	"go.yaml.in/yaml/...":                        {"internal/config", "internal/statedoc", "internal/skills"},
	"github.com/joho/godotenv":                   {"internal/config"},
	"github.com/spf13/cobra":                     {"cmd/codefleet"},
	"cel.dev/cel-go/...":                         {"internal/expression"},
	"github.com/netresearch/go-cron":             {"internal/cron"},
	"github.com/nyaruka/phonenumbers":            {"internal/guardrails/privacy"},
	"github.com/zricethezav/gitleaks/...":        {"internal/guardrails/privacy"},
	"github.com/santhosh-tekuri/jsonschema/...": {
		"schemas", "internal/form", "internal/tools/broker",
		"internal/tools/pygen", "internal/violation",
	},
	"github.com/fxamacker/cbor/...":                             {"internal/executor/microsandbox"},
	"github.com/cloudevents/sdk-go/v2/client":                   {}, // our own binding; only package event is used
	"github.com/cloudevents/sdk-go/v2/protocol/...":             {},
	"github.com/cloudevents/sdk-go/protocol/nats/...":           {},
	"github.com/cloudevents/sdk-go/protocol/nats_jetstream/...": {},
}

// base lists small packages without state that every package may import.
var base = []string{
	"internal/text", "internal/names", "internal/clock", "internal/filelock", "internal/errcode",
	"internal/limited", "internal/metrics", "internal/mutex", "internal/removal", "internal/strictjson",
}

// testOnly lists packages that only tests may import: they are in no released binary.
var testOnly = []string{
	"internal/executor/executortest", "internal/state/statetest", "internal/ingest/ingesttest",
	"internal/up/uptest", "internal/faulttest", "internal/logtest", "internal/pythontest", "internal/sourcetest",
	"testing",
}

// testHelpers lists packages that all tests may import.
var testHelpers = []string{"internal/logtest", "internal/pythontest", "internal/sourcetest"}

// TestImports checks the imports of each Go file against the table, and that the table permits no other imports.
func TestImports(t *testing.T) {
	packages := map[string][]string{} // each with itself and its imports
	for _, f := range sourcetest.GoFiles(t) {
		packages[f.Package] = append(packages[f.Package], f.Package)
		_, tree := sourcetest.Parse(t, f, parser.ImportsOnly)
		for _, spec := range tree.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if problem := check(f.Package, imported, f.Test); problem != "" {
				t.Errorf("%s: imports %s: %s", f.Path, imported, problem)
			}
			packages[f.Package] = append(packages[f.Package], strings.TrimPrefix(imported, module+"/"))
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(packages)) {
		if _, ok := imports[pkg]; !ok && !exempt(pkg) {
			t.Errorf("%s is not in the table of internal/arch: add it, with the packages that it may import", pkg)
		}
	}
	for pkg, permitted := range imports {
		if packages[pkg] == nil {
			t.Errorf("%s is in the table of internal/arch, but does not exist: remove it", pkg)
		}
		for _, p := range permitted {
			if !slices.ContainsFunc(packages[pkg], func(imported string) bool { return under(imported, p) }) {
				t.Errorf("%s does not import %s: remove it from the table of internal/arch", pkg, p)
			}
		}
	}
}

// TestRules tests the function check.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		pkg, imported string
		test, ok      bool
	}{
		{"internal/state", module + "/internal/executor", false, false},
		{"internal/state", module + "/internal/state/mem", true, true},
		{"internal/state", module + "/internal/executor", true, false},
		{"internal/pipeline", module + "/internal/tools/broker", false, true},
		{"internal/pipeline", "github.com/nats-io/nats.go/jetstream", false, false},
		{"internal/jobs", "github.com/nats-io/nats.go", false, true},
		{"internal/jobs", "go.opentelemetry.io/otel/sdk/trace", true, true},
		{"internal/jobs", "go.opentelemetry.io/otel/trace", false, true},
		{"cmd/worker", module + "/internal/executor/executortest", false, false},
		{"cmd/worker", "testing", false, false},
		{"cmd/worker", module + "/internal/worker", false, true},
		{"examples/go-producer", "github.com/nats-io/nats.go", false, true},
		{"examples/go-producer", module + "/internal/jobs", false, false},
	} {
		if problem := check(c.pkg, c.imported, c.test); (problem == "") != c.ok {
			t.Errorf("check(%s, %s, test %v) = %q, want ok %v", c.pkg, c.imported, c.test, problem, c.ok)
		}
	}
}

// exempt reports whether a package needs no row in the table: commands, examples, and programs of developers.
func exempt(pkg string) bool {
	return pkg == "." || under(pkg, "cmd/...") || under(pkg, "examples/...") || under(pkg, "test/...")
}

// check returns why pkg may not import a package, or "" if it may. test is whether the import is in a test file.
func check(pkg, imported string, test bool) string {
	ours, isOurs := strings.CutPrefix(imported, module+"/")
	if !isOurs {
		ours = imported
	}
	contractSuite := slices.Contains(testOnly, pkg)
	if slices.Contains(testOnly, ours) && !test && !contractSuite {
		return "only tests may import it"
	}
	switch {
	case !isOurs && (test || under(pkg, "examples/...")):
		return "" // tests use real servers and clients
	case !isOurs:
		return checkHome(pkg, imported)
	case under(pkg, "examples/..."):
		if under(ours, "internal/...") {
			return "an example may import only what a user of the project can"
		}
	case slices.Contains(base, ours):
	case under(ours, "test/...") && !under(pkg, "test/..."):
		return "it is only for developers"
	case exempt(pkg) || ours == pkg || slices.ContainsFunc(imports[pkg], func(p string) bool { return under(ours, p) }):
	case test && (slices.Contains(testHelpers, ours) || under(ours, pkg+"/...") || testFixture(pkg, ours)):
	default:
		return "not in the table of internal/arch"
	}
	return ""
}

// testFixture reports whether tests of pkg may import the package, in order to start a real queue or store.
func testFixture(pkg, ours string) bool {
	users := []string{
		"internal/toolbox", "internal/worker", "internal/assembly/...", "internal/jobs",
		"internal/state/...", "internal/tools", "internal/skills", "internal/pylayer", "internal/pipeline",
		"internal/ingest", "internal/bridge", "client", "internal/executor/...", "internal/automation", "internal/page",
		"internal/workflow/engine",
	}
	fixtures := []string{
		"client", "internal/objects", "internal/allowlist", "internal/egress", "internal/embedded",
		"internal/jobs", "internal/state/...", "internal/executor/...", "internal/ingest/...", "internal/faulttest",
		"internal/skills", "schemas",
	}
	match := func(name string, list []string) bool {
		return slices.ContainsFunc(list, func(p string) bool { return under(name, p) })
	}
	for _, leaf := range []string{"internal/state/...", "internal/executor/..."} {
		if under(pkg, leaf) {
			return ours == "internal/embedded" || under(ours, leaf) || ours == "internal/objects"
		}
	}
	return match(pkg, users) && match(ours, fixtures)
}

// checkHome returns why pkg may not import a package of another module, or "" if it may.
func checkHome(pkg, imported string) string {
	for m, allowed := range homes {
		if under(imported, m) && !slices.Contains(allowed, pkg) {
			if len(allowed) == 0 {
				return "no package may import it"
			}
			return "only " + strings.Join(allowed, ", ") + " may import it"
		}
	}
	return ""
}

// under reports whether name is pattern, or is below it if pattern ends in /... .
func under(name, pattern string) bool {
	base, wild := strings.CutSuffix(pattern, "/...")
	return name == base || wild && strings.HasPrefix(name, base+"/")
}
