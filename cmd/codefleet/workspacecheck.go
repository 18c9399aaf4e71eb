package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/errcode"
)

func (a *app) wsCheckCommand() *cobra.Command {
	var read string
	c := a.wsVerb(&cobra.Command{
		Use:   "check",
		Short: "Verify that every kept version can be read",
		Long: "Verify that every kept version can be read from the object store, and list the lost\n" +
			"paths of the newest one. It changes nothing; `codefleet workspace repair` does.",
		Example: "  codefleet workspace check --read-data          verify all content, too\n" +
			"  codefleet workspace check --read-data=2/7      the second seventh of it",
		Args: noArgs,
	}, func(ctx context.Context, ws *client.Workspace, _ []string) error {
		o, err := readData(read)
		if err != nil {
			return err
		}
		line := a.progress()
		line.show("check " + ws.Name())
		found, err := ws.Check(ctx, o)
		line.clear()
		if err != nil {
			return err
		}
		err = a.print(found, func(w io.Writer) {
			for _, p := range found.Problems {
				fmt.Fprintln(w, "damaged:", printable(p))
			}
			for _, p := range found.Lost {
				fmt.Fprintln(w, "lost:", printable(p))
			}
			fmt.Fprintf(w, "%d versions, %d packs, %d of them read: %d problems\n", found.Versions, found.Packs,
				found.Read, len(found.Problems))
		})
		if err == nil && len(found.Problems) > 0 {
			return &failure{
				code: errcode.ExitFailed, message: "the workspace is damaged",
				hint: "codefleet workspace repair --dry-run --workspace " + ws.Name(),
			}
		}
		return err
	})
	c.Flags().StringVar(&read, "read-data", "", "verify content, too: all of it, or part `N/T`")
	c.Flags().Lookup("read-data").NoOptDefVal = "1/1"
	return c
}

// readData parses --read-data.
func readData(text string) (client.CheckOptions, error) {
	if text == "" {
		return client.CheckOptions{}, nil
	}
	n, t, ok := strings.Cut(text, "/")
	part, err1 := strconv.Atoi(n)
	of, err2 := strconv.Atoi(t)
	if !ok || errors.Join(err1, err2) != nil || part < 1 || of < part {
		return client.CheckOptions{}, usage("--read-data=%s: want N/T, as in 2/7 for the second seventh", text)
	}
	return client.CheckOptions{ReadData: true, Part: part, Of: of}, nil
}

func (a *app) wsRepairCommand() *cobra.Command {
	var o client.RepairOptions
	c := a.wsVerb(&cobra.Command{
		Use:   "repair",
		Short: "Repair the newest version after objects were lost",
		Long: "Repair the newest version after objects in the store were lost or damaged: a new\n" +
			"generation gets all that is left. Nothing is removed, and an intact workspace stays as\n" +
			"it is.\n\n" +
			"  HEAD lost         the newest manifest whose packs exist takes its place\n" +
			"  a manifest lost   its names are lost, unless a later manifest has them. Content of\n" +
			"                    which no name is known comes back in recovered/, named by its\n" +
			"                    SHA-256; a file above 4 MiB in pieces\n" +
			"  a pack lost       files that were in no other pack are left out, and listed with the\n" +
			"                    newest generation that has older content of them\n\n" +
			"Pins are kept; if the list of pins is damaged, their names are lost.\n" +
			"Lost content of older versions stays lost: `codefleet workspace check` reports it until\n" +
			"these versions are garbage collected.",
		Example: "  codefleet workspace repair --dry-run       report what can be recovered\n" +
			"  codefleet workspace repair --read-data     verify all content first",
		Args: noArgs,
	}, func(ctx context.Context, ws *client.Workspace, _ []string) error {
		line := a.progress()
		line.show("repair " + ws.Name())
		done, err := ws.Repair(ctx, o)
		line.clear()
		if err != nil {
			return err
		}
		return a.print(done, func(w io.Writer) { showRepair(w, ws.Name(), o, done) })
	})
	c.Flags().BoolVar(&o.ReadData, "read-data", false, "verify all content of the newest version")
	c.Flags().BoolVar(&o.DryRun, "dry-run", false, "report what would be done, and change nothing")
	return c
}

func showRepair(w io.Writer, name string, o client.RepairOptions, done client.Repaired) {
	for _, p := range done.Problems {
		fmt.Fprintln(w, "damaged:", printable(p))
	}
	for _, g := range done.LostGenerations {
		fmt.Fprintf(w, "unknown: what generation %d changed\n", g)
	}
	for _, l := range done.Lost {
		older := "no older content"
		if l.Older > 0 {
			older = fmt.Sprintf("older content: codefleet workspace cat -g %d", l.Older)
		}
		fmt.Fprintf(w, "lost: %s (%d bytes; %s)\n", printable(l.Path), l.Bytes, older)
	}
	for _, p := range done.Recovered {
		fmt.Fprintln(w, "recovered, name lost:", printable(p))
	}
	switch {
	case done.Commit.NoChange:
		fmt.Fprintf(w, "nothing to repair: the newest version of %s can be read\n", name)
	case o.DryRun:
		fmt.Fprintf(w, "dry run: generation %d of %s; repair it with codefleet workspace repair\n",
			done.Commit.Generation, name)
	default:
		fmt.Fprintf(w, "generation %d of %s: %d lost, %d recovered without their names\n",
			done.Commit.Generation, name, len(done.Lost), len(done.Recovered))
	}
}

func (a *app) wsMirrorCommand() *cobra.Command {
	return a.wsVerb(&cobra.Command{
		Use:   "mirror",
		Short: "Update the mirror of the newest version (workspaces.mirror)",
		Long: "Update the mirror of the newest version as plain files, if the fleet keeps one\n" +
			"(workspaces.mirror). Commits do so in the background; this is for the first time, and\n" +
			"for a mirror that is out of date.",
		Args: noArgs,
	}, func(ctx context.Context, ws *client.Workspace, _ []string) error {
		line := a.progress()
		line.show("mirror " + ws.Name())
		done, err := ws.Mirror(ctx)
		line.clear()
		if err != nil {
			return err
		}
		return a.print(done, func(w io.Writer) {
			for _, p := range done.Skipped {
				fmt.Fprintln(w, "skipped, name too long:", printable(p))
			}
			fmt.Fprintf(w, "the mirror of %s is at generation %d: %d files written, %d removed\n", ws.Name(),
				done.Generation, done.Put, done.Removed)
		})
	})
}
