package pipeline

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/internal/executor"
)

// Missing skills and tools get their own hints; other errors get none.
func TestHintModules(t *testing.T) {
	const skill = "the workspace has no such skill: save it as skills/NAME.py, with a function run or NAME"
	const tool = "unknown tool: `codefleet tools` lists the tools; you add one as a file servers/SERVER/TOOL.py"
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
		t.Errorf("explainFailure(nil) = %+v, want nil", e)
	}
}

func TestMissingModule(t *testing.T) {
	all := []executor.EnvironmentStats{
		{Name: "default"},
		{Name: "science", Modules: []string{"numpy 2.1.0", "scikit_learn 1.5.0"}},
	}
	for _, c := range []struct{ module, name, description, want string }{
		{
			"scipy", "science", "host /usr + requirements 0c4b",
			"sandboxes of the pool science (host /usr + requirements 0c4b) have Python's own modules and " +
				"numpy 2.1.0, scikit_learn 1.5.0; an operator adds scipy to the file of pools.science.requirements " +
				"or execution.requirements, and restarts the worker",
		},
		{
			"numpy", "default", "host /usr",
			"sandboxes of the pool default (host /usr) have Python's own modules; send the task to the pool science, " +
				"which has numpy 2.1.0 (--pool science); an operator adds numpy to the file of " +
				"pools.default.requirements or execution.requirements, and restarts the worker",
		},
		{
			"scipy", "images", "image x.tar sha256:12",
			"sandboxes of the pool images (image x.tar sha256:12) have the modules of the image; an operator adds " +
				"it to the image with `pip install scipy`",
		},
	} {
		if d := cmp.Diff(c.want, missingModule(c.module, c.name, c.description, all)); d != "" {
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
		{message: noName, network: allowed}, // the task has network access already
		{message: "ValueError: x"},
	} {
		e := new(Pipeline).explainFailure(steps{network: c.network}, box{}, &executor.Failure{Message: c.message})
		if got := e.Hint != ""; got != c.want {
			t.Errorf("explainFailure of %q with %d hosts: hint %v, want %v", c.message, len(c.network), got, c.want)
		}
	}
}
