package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// usage estimates how many bytes of task data each tenant has in the object store. The store has no such count, so the
// objects are listed now and then. In between, what this process adds is counted.
type usage struct {
	mu       sync.Mutex
	listed   time.Time
	byTenant map[string]int64
}

// usageAge is after which time the objects are listed again before a tenant's data is stored.
const usageAge = 10 * time.Second

// reserve counts data that a tenant is about to store. It returns ErrStorageFull if the tenant would exceed its limit.
func (c *Client) reserve(ctx context.Context, tenant string, size int64) error {
	u := &c.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	if now := time.Now(); u.byTenant == nil || now.Sub(u.listed) > usageAge {
		all, err := c.listUsage(ctx)
		if err != nil {
			return fmt.Errorf("read the usage of the object store: %w", err)
		}
		u.byTenant, u.listed = all, now
	}
	if u.byTenant[tenant]+size > c.opts.Storage.PayloadBytes {
		c.tel.storageFull.Add(ctx, 1)
		return ErrStorageFull
	}
	u.byTenant[tenant] += size
	return nil
}

func (c *Client) listUsage(ctx context.Context) (map[string]int64, error) {
	all := map[string]int64{}
	store, err := c.js.ObjectStore(ctx, bucketObjects)
	if err != nil {
		return nil, err
	}
	objects, err := store.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil, err
	}
	for _, o := range objects {
		if tenant, rest, _ := strings.Cut(o.Name, "/"); strings.HasSuffix(rest, dataName) {
			all[tenant] += int64(o.Size)
		}
	}
	return all, nil
}

// dropData removes a task's data from the object store once no run can need it. If that fails, the data stays until
// the store forgets it.
func (c *Client) dropData(ctx context.Context, tenant, ref string) {
	name, err := objectName(tenant, ref)
	var store jetstream.ObjectStore
	if err == nil {
		store, err = c.js.ObjectStore(ctx, bucketObjects)
	}
	if err == nil {
		err = store.Delete(ctx, name)
	}
	if err != nil && !objectMissing(err) {
		c.opts.Log.DebugContext(ctx, "data of an ended task not removed", "tenant", tenant, "error", err)
	}
}
