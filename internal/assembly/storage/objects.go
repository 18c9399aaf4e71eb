package storage

import (
	"time"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/objects"
)

// catalogueRetry bounds requests for catalogue versions and package layers, because a task may wait for them.
var catalogueRetry = objects.RetryPolicy{Request: 10 * time.Second, Attempts: 3}

// CatalogueObjects returns the fleet's bucket, where catalogues and package layers are published. The first
// request opens the bucket, because codefleet up knows the address of its object store only after the store has
// started.
func CatalogueObjects(c *config.Config) objects.Objects {
	open := func() (objects.Objects, error) { return Objects(c) }
	return objects.WithRetry(objects.Lazy(open), catalogueRetry)
}
