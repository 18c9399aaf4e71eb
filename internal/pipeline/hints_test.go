package pipeline

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/internal/executor"
)

// Missing skills and tools get their own hints; other errors get none.
func TestHintModules(t *testing.T) {
	const skill = "there is no such skill: list the skills, or save one of this name"
	for message, want := range map[string]string{
		"ModuleNotFoundError: No module named 'skills.x'":                      skill,
		"ModuleNotFoundError: No module named 'skills'":                        skill,
		"ModuleNotFoundError: No module named 'servers.x.y'":                   "the task has no tools",
		"ImportError: cannot import name 'x' from 'skills' (unknown location)": skill,
		"ModuleNotFoundError: No module named 'a b'":                           "",
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

// A wrong server gets the nearest name, and no advice to type a command: the reader may be a model.
func TestHintServers(t *testing.T) {
	many := []string{"map_"}
	for i := range 24 {
		many = append(many, fmt.Sprintf("s%02d", i))
	}
	for _, c := range []struct {
		module   string
		packages []string
		want     string
	}{
		{"servers.map", []string{"calculator", "map_"}, "did you mean servers.map_? the servers are calculator, map_"},
		{"servers.zeppelin.fly", []string{"map_"}, "the servers are map_"},
		{"servers.map_.nosuch", []string{"map_"}, "import a tool from its server: from servers.map_ import TOOL"},
		{"servers", nil, "the task has no tools"},
		{
			"servers.zeppelin", many,
			"the servers are map_, s00, s01, s02, s03, s04, s05, s06, s07, s08, s09, s10, s11, s12, s13, s14, s15, " +
				"s16, s17, s18 and 5 more",
		},
	} {
		if got := noServer(c.module, c.packages); got != c.want {
			t.Errorf("noServer(%s, %v) = %q, want %q", c.module, c.packages, got, c.want)
		}
	}
}

func TestMissingModule(t *testing.T) {
	all := []executor.EnvironmentStats{
		{Name: "default"},
		{Name: "science", Packages: []string{"numpy 2.1.0", "scikit_learn 1.5.0"}},
	}
	for _, c := range []struct{ module, name, description, want string }{
		{
			"scipy", "science", "host /usr + requirements 0c4b",
			"the task pool science (host /usr + requirements 0c4b) has Python's own modules and " +
				"numpy 2.1.0, scikit_learn 1.5.0; an operator adds scipy to the file of pools.science.requirements " +
				"or execution.requirements, and restarts the worker",
		},
		{
			"numpy", "default", "host /usr",
			"the task pool default (host /usr) has Python's own modules; send the task to the task pool science, " +
				"which has numpy 2.1.0 (--pool science); an operator adds numpy to the file of " +
				"pools.default.requirements or execution.requirements, and restarts the worker",
		},
		{
			"scipy", "images", "image x.tar sha256:12",
			"the task pool images (image x.tar sha256:12) has the modules of the image; an operator adds " +
				"scipy to the image with `pip install scipy`",
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
