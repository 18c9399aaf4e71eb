package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/codefleet/codefleet/internal/errcode"
)

// TestFlagsAreGivenOnce checks for every flag of every command that it is refused if it is empty, and if it is given
// twice, unless it is a list.
func TestFlagsAreGivenOnce(t *testing.T) {
	values := map[string]string{
		"bool": "true", "duration": "1s", "float64": "1", "int": "1", "int64": "1", "uint64": "1", "memory": "16",
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
				if err, want := checkGiven(fresh, nil), !isList || len(args) == 1; (err != nil) != want {
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

// TestFlagErrors checks for every flag with a type that the error of a wrong value says what the flag accepts, in
// words.
func TestFlagErrors(t *testing.T) {
	checked := 0
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			visit(sub)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			err := c.ParseFlags([]string{"--" + f.Name + "=odd"})
			if err == nil {
				return // a text
			}
			checked++
			want := "--" + f.Name + " odd: want " + wanted[f.Value.Type()]
			if got := c.FlagErrorFunc()(c, err).Error(); got != want || wanted[f.Value.Type()] == "" {
				t.Errorf("%s: %s, want %s", c.CommandPath(), got, want)
			}
		})
	}
	visit((&app{}).root())
	if checked < 30 {
		t.Errorf("checked %d flags, want at least 30: the test may not find them", checked)
	}
}

// TestWrongValues checks the reasons that flags and arguments are refused for.
func TestWrongValues(t *testing.T) {
	for args, want := range map[string]string{
		"run --timeout 99999999h x":                    "--timeout 99999999h is out of range",
		"run --memory 99999999999999999999 x":          "--memory 99999999999999999999 is out of range",
		"run --cpus 1e400 x":                           "--cpus 1e400 is out of range",
		"skills show a --version 99999999999999999999": "--version 99999999999999999999 is out of range",
		"tools show _":                                 "argument 1 is empty",
		"workspace pull _":                             "argument 1 is empty",
		"workspace diff 1 _":                           "argument 2 is empty",
		"status _":                                     "argument 1 is empty",
	} {
		words := strings.Fields(args)
		for i, w := range words {
			words[i] = strings.ReplaceAll(w, "_", "")
		}
		var errs bytes.Buffer
		a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: &errs, exit: os.Exit}
		if code := a.main(t.Context(), words); code != errcode.ExitUsage ||
			!strings.HasPrefix(errs.String(), "codefleet: "+want+"\n") {
			t.Errorf("%s: exit code %d, %s, want %d, %s", args, code, &errs, errcode.ExitUsage, want)
		}
	}
}

// TestMemory checks the units of a flag for memory.
func TestMemory(t *testing.T) {
	for s, want := range map[string]int{
		"512": 512, "512M": 512, "512MB": 512, "512mb": 512, "512MiB": 512,
		"2G": 2048, "2GB": 2048, "2gib": 2048, "16": 16,
		"": -2, "MB": -2, "0": -2, "-1": -2, "15MB": -2, "0MB": -2, "0G": -2,
		"1.5GB": -2, "1TB": -2, "512 MB": -2, "99999999999": -2,
	} {
		got := 0
		if err := (memory{&got}).Set(s); err != nil {
			got = -2
		}
		if got != want {
			t.Errorf("memory %q = %d MB, want %d (-2 is an error)", s, got, want)
		}
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
