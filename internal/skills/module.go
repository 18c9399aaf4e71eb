package skills

import (
	_ "embed"
	"strings"

	"github.com/codefleet/codefleet/internal/tools"
)

//go:embed script.py
var scriptModule string

// Module returns the files of the skill as programs import them, keyed by path below skills/: the skill's own files in
// a directory with the name of its module, and a generated __init__.py. It has the function run if the skill has a
// program; without one, the skill's own __init__.py is kept.
func (s Skill) Module() map[string][]byte {
	dir := ModuleOf(s.Name) + "/"
	out := make(map[string][]byte, len(s.Files)+1)
	for name, data := range s.Files {
		out[dir+name] = data
	}
	doc := tools.PyDoc(s.Description, "") + "\n\n"
	switch s.Entry {
	case EntryFunction:
		out[dir+"__init__.py"] = []byte(doc + "from .scripts.run import *\nfrom .scripts.run import " +
			s.Function() + " as run\n")
	case EntryScript:
		out[dir+"__init__.py"] = []byte(doc + strings.TrimSpace(scriptModule) + "\n")
	case EntryNone:
		if _, own := s.Files["__init__.py"]; !own {
			out[dir+"__init__.py"] = []byte(doc)
		}
	}
	return out
}

// Call returns a program that runs the skill with the task's inputs. inputs is the JSON of the inputs: the members of
// an object and the items of an array become arguments, null becomes none, and any other value is the one argument.
func Call(name string, inputs []byte) string {
	call := "run()"
	switch value := strings.TrimSpace(string(inputs)); {
	case value == "" || value == "null":
	case value[0] == '{':
		call = "run(**inputs)"
	case value[0] == '[':
		call = "run(*inputs)"
	default:
		call = "run(inputs)"
	}
	return "from skills." + ModuleOf(name) + " import run\n\nresult = " + call + "\n"
}
