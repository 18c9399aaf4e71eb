package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestFlagsAreGivenOnce checks for every flag of every command that it is refused if it is empty, and if it is given
// twice, unless it is a list.
func TestFlagsAreGivenOnce(t *testing.T) {
	values := map[string]string{
		"bool": "true", "duration": "1s", "float64": "1", "int": "1", "int64": "1", "uint64": "1",
	}
	checked := 0
	var visit func(path []string, c *cobra.Command)
	visit = func(path []string, c *cobra.Command) {
		for _, sub := range c.Commands() {
			visit(append(path, sub.Name()), sub)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.DefValue == "0s" {
				t.Errorf("%s: the help of --%s says (default 0s)", strings.Join(path, " "), f.Name)
			}
			_, isList := f.Value.(pflag.SliceValue)
			value := values[f.Value.Type()]
			for _, args := range [][]string{{value, value}, {""}} {
				if value != "" && len(args) == 1 {
					continue // the flag's type refuses an empty text
				}
				if len(args) == 2 && value == "" {
					args = []string{"x", "x"}
				}
				fresh, _, err := (&app{}).root().Find(path)
				if err != nil {
					t.Fatal(err)
				}
				for i := range args {
					args[i] = "--" + f.Name + "=" + args[i]
				}
				if err := fresh.ParseFlags(args); err != nil {
					t.Fatalf("%s %s: %v", strings.Join(path, " "), args, err)
				}
				if err, want := checkGiven(fresh), !isList || len(args) == 1; (err != nil) != want {
					t.Errorf("%s %s = %v, want an error: %v", strings.Join(path, " "), args, err, want)
				}
				checked++
			}
		})
	}
	visit(nil, (&app{}).root())
	if checked < 100 {
		t.Errorf("checked %d times, want at least 100: the test may not find the flags", checked)
	}
}
