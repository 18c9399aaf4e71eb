package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/errcode"
)

func (a *app) configCommand() *cobra.Command {
	return commandGroup(&cobra.Command{Use: "config", Short: "Show or check the settings"},
		&cobra.Command{
			Use: "show", Short: "Print every effective setting and its origin; secrets are redacted",
			RunE: a.do(a.configShow),
		},
		&cobra.Command{
			Use: "check", Short: "Report all problems in the settings",
			Long: "Report all problems in the settings. This also checks that the files of the sections\n" +
				"execution and nats exist on this host, and reads the files with settings. Images,\n" +
				"addresses and the files of task pools are checked when the fleet starts.",
			RunE: a.do(a.configCheck),
		},
	)
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

// configReport is what `config check -o json` prints.
type configReport struct {
	OK       bool             `json:"ok"`
	Problems []config.Problem `json:"problems"`
	Warnings []string         `json:"warnings"`
}

func (a *app) configCheck(context.Context, []string) error {
	c, err := a.loadSilently()
	found := []error{err}
	var ofFiles []string
	if err == nil {
		ofFiles, err = c.CheckFiles()
		found = []error{c.CheckLiveFolder(), err, c.CheckQueueFiles()}
	}
	report := configReport{Problems: []config.Problem{}, Warnings: []string{}}
	for _, err := range found {
		if invalid, ok := errors.AsType[*config.InvalidError](err); ok {
			report.Problems = append(report.Problems, invalid.Problems...)
		} else if err != nil {
			return err
		}
	}
	if report.OK = len(report.Problems) == 0; report.OK {
		report.Warnings = slices.Concat(report.Warnings, c.Warnings, ofFiles)
	}
	if err := a.print(report, func(w io.Writer) {
		for _, p := range report.Problems {
			fmt.Fprintln(w, "problem:", p)
		}
		for _, text := range report.Warnings {
			fmt.Fprintln(w, "warning:", text)
		}
		if report.OK {
			fmt.Fprintln(w, "ok")
		}
	}); err != nil {
		return err
	}
	if !report.OK {
		return &failure{code: errcode.ExitUsage}
	}
	return nil
}
