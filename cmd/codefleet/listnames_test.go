package main

import (
	"testing"

	"github.com/spf13/cobra"
)

// TestListNames checks that every command that lists has both names, ls and list, and that a command that lists also
// has them as subcommands.
func TestListNames(t *testing.T) {
	root, found := (&app{}).root(), 0
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			visit(sub)
		}
		if (c.Name() == "ls" || c.Name() == "list") && c.Parent().Name() != "workspace" { // it has both
			want := map[string]string{"ls": "list", "list": "ls"}[c.Name()]
			if found++; !c.HasAlias(want) {
				t.Errorf("%s has the aliases %q, want %s", c.CommandPath(), c.Aliases, want)
			}
		}
	}
	visit(root)
	for _, path := range [][]string{
		{"tokens", "list"},
		{"tenants", "list"},
		{"dead", "list"},
		{"workers", "list"},
		{"skills", "list"},
		{"tools", "list"},
		{"sessions", "ls"},
	} {
		if c, _, err := root.Find(path); err != nil || c.Parent().Name() != path[0] {
			t.Errorf("Find(%q) = %v, %v, want a subcommand", path, c, err)
		}
	}
	if found < 10 {
		t.Errorf("found %d commands, want at least 10", found)
	}
}
