package pipeline

import (
	"strings"
	"testing"

	"github.com/codefleet/codefleet/schemas"
)

func TestHintModules(t *testing.T) {
	p := &Pipeline{Stages: Stages{Modules: []string{"numpy 2.1.0"}}}
	for message, want := range map[string]string{
		"ModuleNotFoundError: No module named 'pandas.io'": `sandboxes (host /usr) have Python's own modules and numpy 2.1.0; an operator adds packages with a line such as "pandas" in`,
		"ModuleNotFoundError: No module named 'skills.x'":  "the workspace has no such skill: save it as skills/NAME.py",
		"ModuleNotFoundError: No module named 'skills'":    "the workspace has no such skill",
		"ModuleNotFoundError: No module named 'a b'":       "",
		"ValueError: x": "",
	} {
		task := &task{result: schemas.Result{Error: &schemas.Error{Message: message}, Sandbox: schemas.Sandbox{Environment: "host /usr"}}}
		p.hintModules(task)
		if got := task.result.Error.Hint; !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("hint of %q = %q, want %q", message, got, want)
		}
	}
	p.hintModules(&task{}) // of a program that succeeded
}
