package toolbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/codefleet/codefleet/internal/tools"
	"github.com/codefleet/codefleet/servers"
)

// ServersDir returns the directory of tool modules. If none is configured, it installs the built-in tools into a
// directory below the data directory, and returns that. It also installs them into a configured directory that is
// empty, and leaves any other configured directory as it is. The built-in MCP servers whose names are in replaced are
// not installed.
func ServersDir(configured, data string, replaced ...string) (string, error) {
	dir := filepath.Join(data, "servers")
	if configured != "" {
		entries, err := os.ReadDir(configured)
		if err != nil || len(entries) > 0 {
			return configured, nil //nolint:nilerr // the catalogue reports the error when it reads the directory
		}
		dir = configured
	}
	if err := servers.Install(dir, replaced...); err != nil {
		return "", fmt.Errorf("install the built-in tools into %s: %w", dir, err)
	}
	return dir, nil
}

// OpenCatalogue opens the catalogue in ServersDir.
func OpenCatalogue(configured, data string, replaced ...string) (*tools.Catalogue, error) {
	dir, err := ServersDir(configured, data, replaced...)
	if err != nil {
		return nil, err
	}
	return tools.OpenCatalogue(dir, tools.Options{Check: tools.PythonChecker("")}), nil
}

// PublishedOr returns a source that reads the published catalogue, or the local one until a catalogue is published.
func PublishedOr(published *tools.Published, local *tools.Catalogue) tools.Source {
	return &publishedOr{published, local}
}

type publishedOr struct {
	published *tools.Published
	local     *tools.Catalogue
}

func (p *publishedOr) Read(ctx context.Context) (*tools.Listing, error) {
	listing, err := p.published.Read(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return p.local.Read(ctx)
	}
	return listing, err
}

func (p *publishedOr) Unpack(ctx context.Context, dir string) (tools.Version, *tools.Listing, error) {
	v, listing, err := p.published.Unpack(ctx, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return p.local.Unpack(ctx, dir)
	}
	return v, listing, err
}
