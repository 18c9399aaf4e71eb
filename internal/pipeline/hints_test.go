package pipeline

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/internal/executor"
)

// Skills and tools have hints of their own; other errors have none.
func TestHintModules(t *testing.T) {
	const skill = "the workspace has no such skill: save it as skills/NAME.py, with a function run or NAME"
	const tool = "there is no such tool: `codefleet tools` lists them; one of your own is a file servers/SERVER/TOOL.py"
	for message, want := range map[string]string{
		"ModuleNotFoundError: No module named 'skills.x'":    skill,
		"ModuleNotFoundError: No module named 'skills'":      skill,
		"ModuleNotFoundError: No module named 'servers.x.y'": tool,
		"ModuleNotFoundError: No module named 'a b'":         "",
		"ValueError: x": "",
	} {
		e := new(Pipeline).explainFailure(steps{}, box{}, &executor.Failure{Message: message})
		if got := e.Hint; got != want {
			t.Errorf("hint of %q = %q, want %q", message, got, want)
		}
	}
	if e := new(Pipeline).explainFailure(steps{}, box{}, nil); e != nil {
		t.Errorf("error %+v of a program that succeeded", e)
	}
}

func TestMissingModule(t *testing.T) {
	all := []executor.EnvironmentStats{
		{Name: "default"},
		{Name: "science", Modules: []string{"numpy 2.1.0", "scikit_learn 1.5.0"}},
	}
	for _, c := range []struct{ module, name, what, want string }{
		{
			"scipy", "science", "host /usr + requirements 0c4b",
			"sandboxes of the pool science (host /usr + requirements 0c4b) have Python's own modules and " +
				"numpy 2.1.0, scikit_learn 1.5.0; an operator adds it with `echo scipy >> FILE`, for the FILE of " +
				"pools.science.requirements or execution.requirements, and starts the worker again",
		},
		{
			"numpy", "default", "host /usr",
			"sandboxes of the pool default (host /usr) have Python's own modules; send the task to the pool science, " +
				"which has numpy 2.1.0 (--pool science); an operator adds it with `echo numpy >> FILE`, for the FILE " +
				"of pools.default.requirements or execution.requirements, and starts the worker again",
		},
		{
			"scipy", "images", "image x.tar sha256:12",
			"sandboxes of the pool images (image x.tar sha256:12) have what the image has; an operator adds it " +
				"to the image: pip install scipy, when it is built",
		},
	} {
		if d := cmp.Diff(c.want, missingModule(c.module, c.name, c.what, all)); d != "" {
			t.Errorf("missingModule(%s, %s) (-want +got):\n%s", c.module, c.name, d)
		}
	}
}

func TestHintNetwork(t *testing.T) {
	const noName = "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>"
	allowed, _, err := allowlist.ParseAll([]string{"example.org"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		message string
		network []allowlist.Pattern
		want    bool
	}{
		{message: noName, want: true},
		{message: "OSError: [Errno 101] Network is unreachable", want: true},
		{message: noName, network: allowed}, // the task has network access: something else is wrong
		{message: "ValueError: x"},
	} {
		e := new(Pipeline).explainFailure(steps{network: c.network}, box{}, &executor.Failure{Message: c.message})
		if got := e.Hint != ""; got != c.want {
			t.Errorf("explainFailure of %q with %d hosts: hint %v, want %v", c.message, len(c.network), got, c.want)
		}
	}
}
