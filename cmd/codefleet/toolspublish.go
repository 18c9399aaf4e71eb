package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/codefleet/codefleet/internal/assembly/storage"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/toolbox"
	"github.com/codefleet/codefleet/internal/tools"
)

func (a *app) toolsPublishCommand() *cobra.Command {
	var version string
	c := &cobra.Command{
		Use:   "publish",
		Short: "Store the tools of the servers directory in the fleet's bucket, as the version that new tasks use",
		Long: "Store the tools of the settings' servers directory (modules, definitions, approvals) as one immutable version\n" +
			"in the fleet's bucket (s3.* of the settings, or that of --fleet FILE or of this machine's fleet), and make it the\n" +
			"one that new tasks use. Workers and ingest processes whose settings name no execution.servers_dir fetch it\n" +
			"within seconds; they need no files. `codefleet up` goes on with its own directory. Tasks that have begun keep their version.",
		Example: "  codefleet tools publish\n  codefleet tools publish --version 5xq…   go back to a version of before",
		Args:    noArgs,
		RunE: a.do(func(ctx context.Context, _ []string) error {
			c, err := a.loadFleet()
			if err != nil {
				return err
			}
			out, broken, err := publish(ctx, c, version)
			switch {
			case errors.Is(err, errNoBucket):
				return &failure{code: errcode.ExitUsage, message: err.Error(), hint: "give --fleet FILE, or s3.endpoint, s3.bucket and its keys in config.yaml"}
			case errors.Is(err, fs.ErrNotExist) && version != "":
				return &failure{code: errcode.ExitUsage, message: "no version " + version + " was published"}
			case err != nil:
				return &failure{code: errcode.ExitUnreachable, message: "publish the tools", err: err, hint: "does the bucket answer? see `codefleet doctor`"}
			}
			for _, b := range broken {
				fmt.Fprintln(a.stderr, "left out:", b)
			}
			if n := out.Tools - out.Usable; n > 0 {
				fmt.Fprintf(a.stderr, "%d tools wait for approval, and are refused when they are called: codefleet tools approve\n", n)
			}
			return a.print(out, func(w io.Writer) { fmt.Fprintf(w, "%s  %d tools\n", out.Version, out.Tools) })
		}),
	}
	c.Flags().StringVar(&version, "version", "", "make this version, which was published before, the current one")
	return c
}

// published is what `tools publish` did.
type published struct {
	Version string `json:"version"`
	Tools   int    `json:"tools"`
	Usable  int    `json:"usable"` // of them: local or approved
}

func publish(ctx context.Context, c *config.Config, version string) (published, []tools.Broken, error) {
	if c.S3.Endpoint == "" {
		return published{}, nil, errNoBucket
	}
	bucket := storage.CatalogueObjects(c)
	var snap *tools.Listing
	var err error
	if version != "" {
		snap, err = tools.Republish(ctx, bucket, version)
	} else {
		version, snap, err = publishLocal(ctx, c, bucket)
	}
	if err != nil {
		return published{}, nil, err
	}
	out := published{Version: version, Tools: len(snap.Tools)}
	for _, t := range snap.Tools {
		if t.Usable() {
			out.Usable++
		}
	}
	return out, snap.Broken, nil
}

var errNoBucket = errors.New("the settings name no bucket")

// publishLocal stores the catalogue of the settings' servers directory as a version, and makes it the
// one of new tasks.
func publishLocal(ctx context.Context, c *config.Config, bucket objects.Objects) (string, *tools.Listing, error) {
	catalogue, err := toolbox.OpenCatalogue(c.Execution.ServersDir, c.Data)
	if err != nil {
		return "", nil, err
	}
	v, snap, err := catalogue.Pack(ctx)
	if err != nil {
		return "", nil, err
	}
	return v.ID, snap, tools.Publish(ctx, bucket, v)
}

// loadFleet reads the configuration, with the addresses and credentials of the fleet.json that was
// named on top. Where none was named and the settings know no bucket, it is that of this machine's fleet.
func (a *app) loadFleet() (*config.Config, error) {
	path := cmp.Or(a.fleet, a.lookup("CODEFLEET_FLEET"))
	if path == "" {
		c, err := a.load()
		if err != nil || c.S3.Endpoint != "" {
			return c, err
		}
		path = filepath.Join(c.Data, config.FleetFileName)
		if _, err := os.Stat(path); err != nil {
			return c, nil //nolint:nilerr // there is none
		}
	}
	f, err := config.ReadFleetFile(path)
	if err != nil {
		return nil, noFleet(err)
	}
	return a.load(f.Settings("--fleet " + path)...)
}
