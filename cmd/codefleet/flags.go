package main

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// This file explains why a flag's value cannot be parsed, and refuses flags that might not do what the user meant. If a
// flag were repeated, only its last value would count. An empty value or zero would silently select the default, or
// everything.

// wanted says what a flag of each type accepts.
var wanted = map[string]string{
	"bool":     "true or false",
	"duration": "a time with its unit (ms, s, m or h), such as 90s, 15m or 24h",
	"float64":  "a number, such as 0.5",
	"int":      "a whole number, such as 10",
	"int64":    "a whole number, such as 10",
	"uint64":   "a whole number, such as 10",
	"memory":   "a whole number of MB, such as 512, or one with its unit (MB or GB), such as 2GB",
}

// flagError explains an error about the flags of a command line.
func flagError(c *cobra.Command, err error) error {
	help := c.CommandPath() + " --help"
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return usage("%v", err).try(help)
	}
	f, value := invalid.GetFlag(), cmp.Or(printable(invalid.GetValue()), `""`)
	want, own := errors.AsType[wantError](err)
	if !own {
		want = wantError(wanted[f.Value.Type()])
	}
	isLongTime := f.Value.Type() == "duration" && anyDuration.MatchString(invalid.GetValue())
	if !own && (isLongTime || errors.Is(err, strconv.ErrRange)) {
		return usage("--%s %s is out of range", f.Name, value).try(help)
	}
	if want == "" {
		return usage("--%s %s: %v", f.Name, value, errors.Unwrap(invalid)).try(help)
	}
	return usage("--%s %s: want %s", f.Name, value, want).try(help)
}

// anyDuration matches durations, also those that are too long for a time.Duration.
var anyDuration = regexp.MustCompile(`^(?:\d+(?:\.\d*)?(?:ns|us|µs|ms|s|m|h))+$`)

// wantError is the error of a value that a flag does not accept. Its text says what the flag accepts.
type wantError string

func (e wantError) Error() string { return string(e) }

// memory is the value of a flag for an amount of memory. It is a number of MB.
type memory struct{ mb *int }

func (memory) Type() string { return "memory" }

func (v memory) String() string { return strconv.Itoa(*v.mb) }

func (v memory) Set(s string) error {
	number, factor := strings.ToUpper(s), int64(1)
	for _, unit := range []struct {
		name   string
		factor int64
	}{{"MIB", 1}, {"MB", 1}, {"M", 1}, {"GIB", 1024}, {"GB", 1024}, {"G", 1024}} {
		if n, ok := strings.CutSuffix(number, unit.name); ok {
			number, factor = n, unit.factor
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err == nil && n*factor < minMemoryMB {
		err = wantError("at least " + strconv.Itoa(minMemoryMB) + " MB")
	}
	*v.mb = int(n * factor)
	return err
}

// counted is the value of a flag that is not a list. It counts how often the flag is given.
type counted struct {
	pflag.Value
	times int
}

func (v *counted) Set(s string) error {
	v.times++
	return v.Value.Set(s)
}

// countFlags makes the flags of a command count how often they are given, except those that are lists.
func countFlags(c *cobra.Command) {
	for _, set := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
		set.VisitAll(func(f *pflag.Flag) {
			_, isList := f.Value.(pflag.SliceValue)
			if _, done := f.Value.(*counted); !isList && !done {
				f.Value = &counted{Value: f.Value}
				if f.DefValue == "0s" { // a zero default, which pflag does not recognise in a counted flag
					f.DefValue = ""
				}
			}
		})
	}
}

// positive is the value of a number flag whose zero means that the flag is not given.
type positive struct{ pflag.Value }

func (v positive) Set(s string) error {
	if n, err := strconv.ParseInt(s, 0, 64); err == nil && n < 1 {
		return wantError("at least 1")
	}
	return v.Value.Set(s)
}

// requirePositive makes the named number flags refuse values below 1.
func requirePositive(c *cobra.Command, names ...string) {
	for _, name := range names {
		f := c.Flags().Lookup(name)
		f.Value = positive{f.Value}
	}
}

// checkGiven refuses flags that are given twice, except lists, and flags and arguments with an empty value, as in
// --workspace "$UNSET".
func checkGiven(c *cobra.Command, args []string) (err error) {
	if i := slices.Index(args, ""); i >= 0 && c.Name() != cobra.ShellCompRequestCmd &&
		c.Name() != cobra.ShellCompNoDescRequestCmd {
		return usage("argument %d is empty", i+1).try(c.CommandPath() + " --help")
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		empty := f.Value.String() == ""
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values := list.GetSlice()
			empty = len(values) == 0 || slices.Contains(values, "")
		}
		v, ok := f.Value.(*counted)
		switch {
		case err != nil:
		case ok && v.times > 1:
			err = usage("--%s is given %d times", f.Name, v.times).try(c.CommandPath() + " --help")
		case empty:
			err = usage("--%s is empty", f.Name).try(c.CommandPath() + " --help")
		}
	})
	return err
}
