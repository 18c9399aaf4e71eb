package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/errcode"
)

func (a *app) configCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "config", Short: "Show or check the settings", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(
		&cobra.Command{
			Use: "show", Short: "Print every effective setting and its origin; secrets are redacted", Args: noArgs,
			RunE: a.do(a.configShow),
		},
		&cobra.Command{
			Use: "check", Short: "Report problems of the settings", Args: noArgs,
			RunE: a.do(a.configCheck),
		},
	)
	return c
}

func (a *app) configShow(context.Context, []string) error {
	c, err := a.load()
	if err != nil {
		return err
	}
	return a.print(c.Values(), func(w io.Writer) {
		for _, v := range c.Values() {
			row(w, v.Key, v.Value, v.Origin)
		}
	})
}

// checked is what `config check -o json` prints.
type checked struct {
	OK       bool             `json:"ok"`
	Problems []config.Problem `json:"problems"`
	Warnings []string         `json:"warnings"`
}

func (a *app) configCheck(context.Context, []string) error {
	c, err := config.Load(config.Source{File: a.config, Env: a.env})
	invalid, ok := errors.AsType[*config.InvalidError](err)
	if err != nil && !ok {
		return err
	}
	found := checked{OK: err == nil, Problems: []config.Problem{}, Warnings: []string{}}
	if err == nil {
		found.Warnings = append(found.Warnings, c.Warnings...)
	} else {
		found.Problems = invalid.Problems
	}
	if err := a.print(found, func(w io.Writer) {
		for _, p := range found.Problems {
			fmt.Fprintln(w, "problem:", p)
		}
		for _, text := range found.Warnings {
			fmt.Fprintln(w, "warning:", text)
		}
		if found.OK {
			fmt.Fprintln(w, "ok")
		}
	}); err != nil {
		return err
	}
	if !found.OK {
		return &failure{code: errcode.ExitUsage}
	}
	return nil
}
