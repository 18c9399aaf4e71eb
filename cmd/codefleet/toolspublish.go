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
	"github.com/codefleet/codefleet/internal/assembly/tooling"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
)

func (a *app) toolsPublishCommand() *cobra.Command {
	var version string
	c := &cobra.Command{
		Use:   "publish",
		Short: "Publish the tools of the servers directory as a catalogue version",
		Long: "Publish the tools of execution.servers_dir (modules, definitions, approvals) as an\n" +
			"immutable catalogue version in the fleet's bucket. --fleet FILE selects the bucket, or\n" +
			"else s3.* in the settings, or else the fleet on this host. New tasks use the published\n" +
			"version; tasks that have begun keep theirs. Workers and ingest processes without\n" +
			"execution.servers_dir fetch it within seconds. `codefleet up` uses its own directory.",
		Example: "  codefleet tools publish\n  codefleet tools publish --version 5xq…   return to an earlier version",
		RunE: a.do(func(ctx context.Context, _ []string) error {
			c, err := a.loadFleet()
			if err != nil {
				return err
			}
			out, broken, err := publish(ctx, c, version)
			switch {
			case errors.Is(err, errNoBucket):
				return usage("%v", err).
					try("give --fleet FILE, or set s3.endpoint, s3.bucket and the keys in config.yaml")
			case errors.Is(err, fs.ErrNotExist) && version != "":
				return usage("unknown published version %s", version).
					try("a version that an earlier `codefleet tools publish` printed, or publish without --version")
			case err != nil && ctx.Err() != nil:
				return errInterrupted
			case err != nil && !isBucketError(err):
				return fmt.Errorf("publish the tools: %w", err)
			case err != nil:
				return &failure{
					code: errcode.ExitUnreachable, message: "publish the tools", err: err,
					hint: "check the bucket with `codefleet doctor`",
				}
			}
			for _, b := range broken {
				fmt.Fprintln(a.stderr, "skipped:", b)
			}
			if n := out.Tools - out.Usable; n > 0 {
				fmt.Fprintf(a.stderr, "waiting for approval: %s; calls are refused until `%s`\n",
					text.Count(n, "tool"), a.withFlags("codefleet tools approve"))
			}
			return a.print(out, func(w io.Writer) {
				fmt.Fprintf(w, "%s  %s\n", out.Version, text.Count(out.Tools, "tool"))
			})
		}),
	}
	c.Flags().StringVar(&version, "version", "", "make this published `VERSION` the current one")
	return c
}

// published is what `codefleet tools publish -o json` prints.
type published struct {
	Version string `json:"version"`
	Tools   int    `json:"tools"`
	Usable  int    `json:"usable"` // how many of the tools are local or approved
}

// publish publishes the catalogue of execution.servers_dir. If version is not empty, it makes that published version
// the current one instead.
func publish(ctx context.Context, c *config.Config, version string) (published, []tools.Broken, error) {
	if c.S3.Endpoint == "" {
		return published{}, nil, errNoBucket
	}
	bucket := storage.CatalogueObjects(c)
	var listing *tools.Listing
	var err error
	if version != "" {
		if listing, err = tools.Republish(ctx, bucket, version); err != nil {
			err = bucketError{err}
		}
	} else {
		version, listing, err = publishLocal(ctx, c, bucket)
	}
	if err != nil {
		return published{}, nil, err
	}
	out := published{Version: version, Tools: len(listing.Tools)}
	for _, t := range listing.Tools {
		if t.Usable() {
			out.Usable++
		}
	}
	return out, listing.Broken, nil
}

var errNoBucket = errors.New("the settings name no bucket")

// publishLocal publishes the catalogue of execution.servers_dir as the current version.
func publishLocal(ctx context.Context, c *config.Config, bucket objects.Objects) (string, *tools.Listing, error) {
	catalogue, err := tooling.Catalogue(c)
	if err != nil {
		return "", nil, err
	}
	v, listing, err := catalogue.Pack(ctx)
	if err != nil {
		return "", nil, err
	}
	if err := tools.Publish(ctx, bucket, v); err != nil {
		return "", nil, bucketError{err}
	}
	return v.ID, listing, nil
}

// bucketError is an error of the fleet's bucket.
type bucketError struct{ error }

func (e bucketError) Unwrap() error { return e.error }

func isBucketError(err error) bool {
	_, ok := errors.AsType[bucketError](err)
	return ok
}

// loadFleet reads the configuration, and overlays the addresses and credentials of a fleet.json. The file is the one
// that --fleet or the environment names or, if the settings name no bucket, the file in the data directory.
func (a *app) loadFleet() (*config.Config, error) {
	path := cmp.Or(a.fleet, a.lookup("CODEFLEET_FLEET"))
	if path == "" {
		c, err := a.loadSilently()
		if err != nil || c.S3.Endpoint != "" {
			return a.load()
		}
		path = filepath.Join(c.Data, config.FleetFileName)
		if _, err := os.Stat(path); err != nil {
			return a.load() // no fleet runs on this host
		}
	}
	f, err := a.readFleetFile(path)
	if err != nil {
		return nil, err
	}
	if f.S3.Endpoint == "" {
		return a.load() // the file has only the address for clients
	}
	return a.load(f.Settings(path)...)
}

// readFleetFile reads a fleet.json. Its errors are for the user: no fleet if the file does not exist, a usage error if
// it is invalid.
func (a *app) readFleetFile(path string) (config.FleetFile, error) {
	defer countReading()()
	f, err := config.ReadFleetFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, noFleet(err)
	case err != nil:
		return f, usage("%v", err)
	}
	return f, nil
}
