package assembly

import (
	"context"
	"errors"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/tools"
)

// ErrNoBucket is returned when the settings do not say where the fleet's bucket is.
var ErrNoBucket = errors.New("the settings name no bucket")

// Publish stores the catalogue of the settings' servers directory as a version in the fleet's bucket,
// and makes it the one of new tasks.
func Publish(ctx context.Context, c *config.Config) (tools.Version, *tools.Snapshot, error) {
	if c.S3.Endpoint == "" {
		return tools.Version{}, nil, ErrNoBucket
	}
	catalogue, err := Catalogue(c)
	if err != nil {
		return tools.Version{}, nil, err
	}
	v, snap, err := catalogue.Pack(ctx)
	if err != nil {
		return tools.Version{}, nil, err
	}
	return v, snap, tools.Publish(ctx, openObjects(c), v)
}

// Republish makes a version that was published before the one of new tasks.
func Republish(ctx context.Context, c *config.Config, id string) (*tools.Snapshot, error) {
	if c.S3.Endpoint == "" {
		return nil, ErrNoBucket
	}
	return tools.Republish(ctx, openObjects(c), id)
}
