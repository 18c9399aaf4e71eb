package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// What is too large for a message is kept in the object store of NATS under <tenant>/<task>/<what>,
// and named by a URI in its place.

const objectScheme = "nats-object:" + bucketObjects + "/"

func objectRef(name string) string { return objectScheme + name }

// objectName returns the name in a reference, which must be one of the tenant's: an event from
// outside could name anybody's.
func objectName(tenant, ref string) (string, error) {
	name, ok := strings.CutPrefix(ref, objectScheme)
	if !ok || !strings.HasPrefix(name, tenant+"/") {
		return "", fmt.Errorf("reference %q: not to data of tenant %s in this fleet's store", head(ref), tenant)
	}
	return name, nil
}

func (c *Client) putObject(ctx context.Context, name string, data []byte) error {
	store, err := c.js.ObjectStore(ctx, bucketObjects)
	if err == nil {
		_, err = store.PutBytes(ctx, name, data)
	}
	if err != nil {
		return fmt.Errorf("store %s: %w", name, err)
	}
	return nil
}

func (c *Client) getObject(ctx context.Context, name string) ([]byte, error) {
	store, err := c.js.ObjectStore(ctx, bucketObjects)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	info, err := store.GetInfo(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if info.Size > maxObject {
		return nil, fmt.Errorf("read %s: %d bytes are more than %d", name, info.Size, maxObject)
	}
	data, err := store.GetBytes(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}

func objectMissing(err error) bool { return errors.Is(err, jetstream.ErrObjectNotFound) }
