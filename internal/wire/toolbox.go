package wire

import (
	"context"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/pipeline"
	"github.com/codefleet/codefleet/internal/selection"
	"github.com/codefleet/codefleet/internal/tools"
)

// Toolbox is the catalogue as the doors of a fleet show it: ingest.Tools. It is safe for concurrent
// use.
type Toolbox struct {
	source interface {
		Read(ctx context.Context) (*tools.Snapshot, error)
	}
	search pipeline.Search
}

// LocalToolbox is the catalogue of the settings' servers directory, without a fleet.
func LocalToolbox(c *config.Config) (*Toolbox, error) {
	catalogue, err := Catalogue(c)
	if err != nil {
		return nil, err
	}
	return &Toolbox{source: catalogue}, nil
}

// Read returns the catalogue as the tenant sees it now: the same Snapshot until something changes.
func (b *Toolbox) Read(ctx context.Context, _ string) (*tools.Snapshot, error) {
	return b.source.Read(ctx)
}

// Search finds tools of the tenant's catalogue as its tasks do.
func (b *Toolbox) Search(ctx context.Context, tenant string, r selection.Request) (selection.Response, error) {
	snap, err := b.Read(ctx, tenant)
	if err != nil {
		return selection.Response{}, err
	}
	return b.search.Of(snap).Select(r)
}
