package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/internal/text"
)

// This file says in our words what cobra finds wrong in a command line.

// wrongArguments returns the error for arguments that a command does not take. Its usage line says what it takes.
func wrongArguments(c *cobra.Command, args []string) *failure {
	_, want, _ := strings.Cut(c.Use, " ")
	f := usage("%s: want %s, got %s", c.Name(), want, text.Count(len(args), "argument"))
	switch {
	case want == "" && len(args) > 0:
		f = usage("%s: unexpected argument %q", c.Name(), args[0])
	case len(args) == 1 && len(c.ValidArgs) > 0:
		f = usage("%s: unknown %s %q: want one of %s", c.Name(), want, args[0], strings.Join(c.ValidArgs, ", "))
	}
	return f.try(c.Parent().CommandPath() + " " + c.Use)
}

// flagGroup matches cobra's errors about a group of flags, of which one is required, or at most one is allowed.
var flagGroup = regexp.MustCompile(`the group \[(.*)\] (?:is required|are set none .*; \[(.*)\] were all set)`)

// checkTogether checks that required flags are given, and which flags are given together.
func checkTogether(c *cobra.Command) error {
	err := c.ValidateFlagGroups()
	if err == nil {
		return nil
	}
	message := err.Error()
	if m := flagGroup.FindStringSubmatch(message); m != nil && m[2] != "" {
		message = flagNames(m[2], " and ") + " cannot be given together"
	} else if m != nil {
		message = "want one of " + flagNames(m[1], ", ")
	}
	return usage("%s: %s", c.Name(), message).try(c.CommandPath() + " --help")
}

// flagNames returns a list of flags, given by their names separated by spaces.
func flagNames(names, separator string) string {
	return "--" + strings.Join(strings.Fields(names), separator+"--")
}

// unknownCommand returns the error for a subcommand that c does not have.
func unknownCommand(c *cobra.Command, name string) *failure {
	const distance = 2 // cobra's default for unknown commands of the root
	c.SuggestionsMinimumDistance = distance
	message := fmt.Sprintf("unknown command %q for %q", name, c.CommandPath())
	return usage("%s", withSuggestions(message, c.SuggestionsFor(name))).try(c.CommandPath() + " --help")
}

// unknownInRoot returns cobra's error for a command that does not exist, in one line.
func unknownInRoot(err error) *failure {
	message, similar, _ := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
	return usage("%s", withSuggestions(message, strings.Fields(similar))).try("codefleet --help")
}

func withSuggestions(message string, similar []string) string {
	if len(similar) == 0 {
		return message
	}
	return message + "; did you mean " + strings.Join(similar, " or ") + "?"
}
