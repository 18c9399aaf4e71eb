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
		Short: "Verify that every version that is kept can be read",
		Long: "Verify that every version that is kept can be read, from what the object store has, and name the paths of the\n" +
			"newest one that are lost. Nothing is changed; `codefleet workspace repair` does that.",
		Example: "  codefleet workspace check --read-data          all content, too\n" +
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
				fmt.Fprintln(w, "damaged:", visible(p))
			}
			for _, p := range found.Lost {
				fmt.Fprintln(w, "lost:", visible(p))
			}
			fmt.Fprintf(w, "%d versions, %d packs, %d of them read: %d problems\n", found.Versions, found.Packs, found.Read, len(found.Problems))
		})
		if err == nil && len(found.Problems) > 0 {
			return &failure{code: errcode.ExitFailed, message: "the workspace is damaged", hint: "codefleet workspace repair --dry-run --workspace " + ws.Name()}
		}
		return err
	})
	c.Flags().StringVar(&read, "read-data", "", "read content too: all of it, or part `N/T`")
	c.Flags().Lookup("read-data").NoOptDefVal = "1/1"
	return c
}

// readData reads --read-data.
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
		Short: "Make the newest version readable again after objects were lost, with all that is still there",
		Long: "Make the newest version readable again when objects in the store were lost or damaged: a new generation has all\n" +
			"that is still there. Nothing is removed, and a workspace that is well stays as it is.\n\n" +
			"  HEAD lost         the newest manifest that has its packs takes its place\n" +
			"  a manifest lost   its names are lost, unless a later one has them too. Content of which no name is known comes\n" +
			"                    back in recovered/, named by its SHA-256; a file above 4 MiB in pieces\n" +
			"  a pack lost       files that were in no other pack are left out, and named with the newest generation that\n" +
			"                    has an older content of theirs\n\n" +
			"Pins keep what they name; when the list of pins is damaged, their names are lost. Content of older versions\n" +
			"that is lost stays lost: `codefleet workspace check` goes on naming it until they have left.",
		Example: "  codefleet workspace repair --dry-run       what would come back, and what not\n" +
			"  codefleet workspace repair --read-data     verify all content first, not only that it is there",
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
	c.Flags().BoolVar(&o.ReadData, "read-data", false, "read and verify all content of the newest version")
	c.Flags().BoolVar(&o.DryRun, "dry-run", false, "say what would be done, and change nothing")
	return c
}

func showRepair(w io.Writer, name string, o client.RepairOptions, done client.Repaired) {
	for _, p := range done.Problems {
		fmt.Fprintln(w, "damaged:", visible(p))
	}
	for _, g := range done.Unknown {
		fmt.Fprintf(w, "unknown: what generation %d changed\n", g)
	}
	for _, l := range done.Lost {
		older := "no older generation has it"
		if l.Older > 0 {
			older = fmt.Sprintf("codefleet workspace cat -g %d has an older one", l.Older)
		}
		fmt.Fprintf(w, "lost: %s (%d bytes; %s)\n", visible(l.Path), l.Bytes, older)
	}
	for _, p := range done.Recovered {
		fmt.Fprintln(w, "recovered without its name:", visible(p))
	}
	switch {
	case done.Commit.NoChange:
		fmt.Fprintf(w, "nothing to repair: the newest version of %s can be read\n", name)
	case o.DryRun:
		fmt.Fprintf(w, "would become generation %d of %s: codefleet workspace repair\n", done.Commit.Generation, name)
	default:
		fmt.Fprintf(w, "generation %d of %s: %d lost, %d recovered without names\n", done.Commit.Generation, name, len(done.Lost), len(done.Recovered))
	}
}

func (a *app) wsMirrorCommand() *cobra.Command {
	return a.wsVerb(&cobra.Command{
		Use:   "mirror",
		Short: "Bring the mirror of plain files to the newest version (workspaces.mirror)",
		Long: "Bring the mirror of plain files to the newest version, where the fleet keeps one (workspaces.mirror). Commits do so\n" +
			"by themselves, in the background; this is for a mirror that stayed behind, and for the first time.",
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
				fmt.Fprintln(w, "skipped, the name is too long:", visible(p))
			}
			fmt.Fprintf(w, "the mirror of %s is at generation %d: %d files put, %d removed\n", ws.Name(), done.Generation, done.Put, done.Removed)
		})
	})
}
