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
	"github.com/codefleet/codefleet/internal/text"
)

func (a *app) wsCheckCommand() *cobra.Command {
	var read string
	c := a.wsCommand(&cobra.Command{
		Use:   "check",
		Short: "Verify that every kept version can be read",
		Long: "Verify that every kept version can be read from the object store, and list the lost\n" +
			"paths of the newest one. The command changes nothing; to repair the workspace, use\n" +
			"`codefleet workspace repair`.",
		Example: "  codefleet workspace check --read-data          also verify all content\n" +
			"  codefleet workspace check --read-data=2/7      also verify the second seventh of the content",
	}, func(ctx context.Context, ws *client.Workspace, _ []string) error {
		o, err := parseReadData(read)
		if err != nil {
			return err
		}
		found, err := during(a, "check "+ws.Name(), func() (client.Checked, error) { return ws.Check(ctx, o) })
		if err == nil && found.Versions == 0 && len(found.Problems) == 0 {
			err = rejectEmpty(ctx, ws)
		}
		if err != nil {
			return err
		}
		err = a.print(found, func(w io.Writer) {
			printLines(w, "damaged:", found.Problems)
			printLines(w, "lost:", found.Lost)
			fmt.Fprintf(w, "%s, %s, %d of them read: %s\n", text.Count(found.Versions, "version"),
				text.Count(found.Packs, "pack"), found.Read, text.Count(len(found.Problems), "problem"))
		})
		if err == nil && len(found.Problems) > 0 {
			return &failure{
				code: errcode.ExitFailed, message: "the workspace is damaged",
				hint: "codefleet workspace repair --dry-run --workspace " + ws.Name(),
			}
		}
		return err
	})
	c.Flags().StringVar(&read, "read-data", "", "also verify all content, or part `N/T` of it")
	c.Flags().Lookup("read-data").NoOptDefVal = "1/1"
	return c
}

// parseReadData parses --read-data.
func parseReadData(text string) (client.CheckOptions, error) {
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
	c := a.wsCommand(&cobra.Command{
		Use:   "repair",
		Short: "Repair the newest version after the loss of objects",
		Long: "Repair the newest version after objects in the store were lost or damaged: commit a new\n" +
			"version with everything that can be recovered. The command removes nothing and does not\n" +
			"change an intact workspace.\n\n" +
			"  HEAD lost         it is rebuilt from the newest manifest whose packs exist\n" +
			"  a manifest lost   its paths are lost, unless a later manifest has them. Content\n" +
			"                    without a known path is recovered in recovered/, named by the first 16\n" +
			"                    digits of its SHA-256; a file above 4 MiB is recovered in pieces\n" +
			"  a pack lost       files that no other pack has are omitted, and listed with the\n" +
			"                    newest generation that has older content of them\n\n" +
			"Pins are kept. If the list of pins is damaged, their names are lost. Lost content of older\n" +
			"versions cannot be repaired: `codefleet workspace check` reports it until garbage\n" +
			"collection removes these versions.",
		Example: "  codefleet workspace repair --dry-run       report what can be recovered\n" +
			"  codefleet workspace repair --read-data     verify all content first",
	}, func(ctx context.Context, ws *client.Workspace, _ []string) error {
		done, err := during(a, "repair "+ws.Name(), func() (client.Repaired, error) { return ws.Repair(ctx, o) })
		if err == nil && done.Commit.NoChange && len(done.Problems) == 0 {
			err = rejectEmpty(ctx, ws)
		}
		if err != nil {
			return err
		}
		return a.print(done, func(w io.Writer) { a.showRepair(w, ws.Name(), o, done) })
	})
	c.Flags().BoolVar(&o.ReadData, "read-data", false, "verify all content of the newest version")
	c.Flags().BoolVar(&o.DryRun, "dry-run", false, "report what would change, and change nothing")
	return c
}

func (a *app) showRepair(w io.Writer, name string, o client.RepairOptions, done client.Repaired) {
	printLines(w, "damaged:", done.Problems)
	for _, g := range done.LostGenerations {
		fmt.Fprintf(w, "unknown: the changes of generation %d\n", g)
	}
	for _, l := range done.Lost {
		older := "no older content"
		if l.Older > 0 {
			older = "older content: " + a.withFlags(fmt.Sprintf("codefleet workspace cat -g %d", l.Older))
		}
		fmt.Fprintf(w, "lost: %s (%s; %s)\n", printable(l.Path), text.Count(l.Bytes, "byte"), older)
	}
	printLines(w, "recovered without its path:", done.Recovered)
	switch {
	case done.Commit.NoChange:
		fmt.Fprintf(w, "nothing to repair: the newest version of %s can be read\n", name)
	case o.DryRun:
		fmt.Fprintf(w, "dry run: this would commit generation %d of %s; run %s\n",
			done.Commit.Generation, name, a.withFlags("codefleet workspace repair"))
	default:
		fmt.Fprintf(w, "generation %d of %s: %d lost, %d recovered without their paths\n",
			done.Commit.Generation, name, len(done.Lost), len(done.Recovered))
	}
}

func (a *app) wsMirrorCommand() *cobra.Command {
	return a.wsCommand(&cobra.Command{
		Use:   "mirror",
		Short: "Update the mirror of the newest version (workspaces.mirror)",
		Long: "Update the mirror of the newest version as plain files, if the fleet has one\n" +
			"(workspaces.mirror). Commits update it in the background. Use this command to fill a new\n" +
			"mirror, or if a mirror is out of date.",
	}, func(ctx context.Context, ws *client.Workspace, _ []string) error {
		done, err := during(a, "mirror "+ws.Name(), func() (client.Mirrored, error) { return ws.Mirror(ctx) })
		if err != nil {
			return err
		}
		return a.print(done, func(w io.Writer) {
			printLines(w, "skipped, path too long:", done.Skipped)
			fmt.Fprintf(w, "the mirror of %s is at generation %d: %s written, %d removed\n", ws.Name(),
				done.Generation, text.Count(done.Put, "file"), done.Removed)
		})
	})
}
