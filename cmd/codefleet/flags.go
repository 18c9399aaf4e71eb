package main

import (
	"errors"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// This file refuses flags that might not do what the user meant. If a flag were repeated, only its last value would
// count. An empty flag, or zero, would select the default, or everything.

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
		return errors.New("want at least 1")
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

// checkGiven refuses flags that are given twice, except lists, and flags with an empty value, as in
// --workspace "$UNSET".
func checkGiven(c *cobra.Command) (err error) {
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
