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

// TestZeroIsRefused checks that a number flag refuses zero if the command takes zero for a flag that is not given.
func TestZeroIsRefused(t *testing.T) {
	for command, flag := range map[string]string{
		"rerun": "at-generation", "skills rm": "version", "skills show": "version", "skills export": "version",
		"skills save": "base", "sessions resume": "checkpoint", "sessions list": "limit", "sessions show": "limit",
		"tools search": "limit",
	} {
		for _, value := range []string{"0", "-1", "0x0", "1"} {
			c, _, err := (&app{}).root().Find(strings.Fields(command))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.ParseFlags([]string{"--" + flag + "=" + value}); (err != nil) != (value != "1") {
				t.Errorf("%s --%s %s = %v, want an error below 1", command, flag, value, err)
			}
		}
	}
}
