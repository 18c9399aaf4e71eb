package toolbox_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/codefleet/codefleet/internal/toolbox"
	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/internal/tools/pygen"
)

// An announced tool can be imported and waits for approval. The other tools of the server keep their definitions and
// stay, even if the connection that announced the tool lists them differently or not at all.
func TestAddAnnounced(t *testing.T) {
	def := func(name, description string) tools.Definition {
		return tools.Definition{Name: name, Description: description, InputSchema: json.RawMessage(`{"type":"object"}`)}
	}
	dir := t.TempDir()
	if added, err := toolbox.AddAnnounced(dir, "lab", []tools.Definition{def("x", "")}); err != nil || added != nil {
		t.Errorf("tools of a server without modules: %v, %v, want none", added, err)
	}
	p, err := pygen.Generate(pygen.Source{
		Server: "lab", About: tools.About{Title: "Lab"},
		Tools: []tools.Definition{def("one", "First."), def("two", "")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pygen.Write(dir, p); err != nil {
		t.Fatal(err)
	}
	one := filepath.Join(dir, "lab", "one.py")
	edited, err := os.ReadFile(one)
	if err == nil {
		edited = append(edited, "# edited\n"...)
		err = os.WriteFile(one, edited, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{{"three-d"}, nil} {
		added, err := toolbox.AddAnnounced(dir, "lab", []tools.Definition{
			def("one", "Something else."), def("three-d", "Third."), def("bad\nname", ""),
		})
		if err != nil || !slices.Equal(added, want) {
			t.Fatalf("AddAnnounced = %q, %v, want %q", added, err, want)
		}
		listing, err := tools.OpenCatalogue(dir, tools.Options{}).Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, tool := range listing.Tools {
			got = append(got, tool.ID()+" "+string(tool.State)+" "+tool.Import()+" "+tool.Description)
		}
		all := []string{
			"lab/one pending from servers.lab import one First.",
			"lab/three-d pending from servers.lab import three_d Third.",
			"lab/two pending from servers.lab import two ",
		}
		if !slices.Equal(got, all) {
			t.Errorf("tools = %q, want %q", got, all)
		}
		if got, err := os.ReadFile(one); err != nil || !bytes.Equal(got, edited) {
			t.Errorf("the edited module = %q, %v; want it unchanged", got, err)
		}
	}
}
