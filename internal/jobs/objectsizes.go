package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/errcode"
)

// objectSizes estimates how many bytes each tenant has in the object store. The store keeps no such count, so this
// process lists the objects at intervals, and counts what it adds in between.
type objectSizes struct {
	mu       sync.Mutex
	listed   time.Time
	byTenant map[string]share
}

// share is what one tenant has in the object store. Each part has the limit Storage.PayloadBytes.
type share struct {
	unfinished int64 // data of unfinished tasks, which must not be removed
	kept       int64 // objects that makeRoom may remove: results, journal entries and data of dead-lettered tasks
}

const (
	// sizesAge is how old the list of objects may be when a tenant's data is stored.
	sizesAge = 10 * time.Second
	// roomParts is how many tenths of the limit a tenant's objects may take after makeRoom has removed some. The spare
	// tenth means that not every new object needs another removal.
	roomParts = 9
)

// reserve counts data of an unfinished task that a tenant is about to store. It returns ErrStorageFull if the data does
// not fit until other tasks of the tenant end, and a RefusedError if the data alone exceeds the limit.
func (c *Client) reserve(ctx context.Context, tenant string, size int64) error {
	if limit := c.opts.Storage.PayloadBytes; size > limit {
		r := refuse(errcode.TooLarge, "", "the data is %d bytes; the limit is %d (queue.payload_mb)", size, limit)
		r.Hint = "pass large data in a workspace, or ask the operator to increase queue.payload_mb"
		return r
	}
	u := &c.sizes
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := c.refreshSizes(ctx); err != nil {
		return err
	}
	s := u.byTenant[tenant]
	if s.unfinished+size > c.opts.Storage.PayloadBytes {
		c.tel.storageFull.Add(ctx, 1)
		return ErrStorageFull
	}
	s.unfinished += size
	u.byTenant[tenant] = s
	return nil
}

// makeRoom counts an object that is about to be kept for a tenant. If the tenant would exceed its limit, makeRoom
// first removes the tenant's oldest kept objects. It returns ErrStorageFull if the object alone exceeds the limit, or
// maxObject.
func (c *Client) makeRoom(ctx context.Context, tenant string, size int64) error {
	limit := c.opts.Storage.PayloadBytes
	if size > min(limit, maxObject) {
		return ErrStorageFull
	}
	u := &c.sizes
	u.mu.Lock()
	defer u.mu.Unlock()
	err := c.refreshSizes(ctx)
	if err == nil && u.byTenant[tenant].kept+size > limit {
		err = c.removeOldest(ctx, tenant, max(0, limit/10*roomParts-size))
	}
	if err != nil {
		return err
	}
	s := u.byTenant[tenant]
	s.kept += size
	u.byTenant[tenant] = s
	return nil
}

// refreshSizes lists the objects again if the last list is older than sizesAge. The caller holds the lock.
func (c *Client) refreshSizes(ctx context.Context) error {
	u := &c.sizes
	if u.byTenant != nil && time.Since(u.listed) <= sizesAge {
		return nil
	}
	objects, err := c.listObjects(ctx)
	if err != nil {
		return err
	}
	u.byTenant, u.listed = map[string]share{}, time.Now()
	for _, o := range objects {
		tenant, _, _ := strings.Cut(o.Name, "/")
		s := u.byTenant[tenant]
		if strings.HasSuffix(o.Name, dataName) {
			s.unfinished += int64(o.Size)
		} else {
			s.kept += int64(o.Size)
		}
		u.byTenant[tenant] = s
	}
	return nil
}

// removeOldest removes the tenant's oldest kept objects until the others have at most limit bytes.
func (c *Client) removeOldest(ctx context.Context, tenant string, limit int64) error {
	objects, err := c.listObjects(ctx)
	if err != nil {
		return err
	}
	objects = slices.DeleteFunc(objects, func(o jetstream.ObjectInfo) bool {
		return !strings.HasPrefix(o.Name, tenant+"/") || strings.HasSuffix(o.Name, dataName)
	})
	slices.SortFunc(objects, func(a, b jetstream.ObjectInfo) int { return b.ModTime.Compare(a.ModTime) })
	kept, removed := int64(0), int64(0)
	for _, o := range objects { // the newest first
		if kept+int64(o.Size) <= limit {
			kept += int64(o.Size)
			continue
		}
		limit = kept // all older ones go
		if err := c.dropObject(ctx, o.Name); err != nil {
			return err
		}
		removed++
	}
	s := c.sizes.byTenant[tenant]
	s.kept = kept
	c.sizes.byTenant[tenant] = s
	if removed > 0 {
		c.tel.payloadsRemoved.Add(ctx, removed)
		c.opts.Log.InfoContext(ctx, "oldest stored objects removed", "tenant", tenant, "removed", removed)
	}
	return nil
}

// listObjects reads the descriptions of all objects. It does not use ObjectStore.List, which waits without end if the
// last object is removed after List has seen it.
func (c *Client) listObjects(ctx context.Context) (objects []jetstream.ObjectInfo, err error) {
	err = c.readFrom(ctx, "OBJ_"+bucketObjects, "$O."+bucketObjects+".M.>", 0, func(m *nats.Msg) error {
		var o jetstream.ObjectInfo
		err := json.Unmarshal(m.Data, &o)
		if err == nil {
			o.ModTime, err = time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
		}
		if err == nil && !o.Deleted {
			objects = append(objects, o)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the object store: %w", err)
	}
	return objects, nil
}

// dropData removes a task's data from the object store once no run can need it. If that fails, the data stays until it
// expires there.
func (c *Client) dropData(ctx context.Context, tenant, ref string) {
	name, err := objectName(tenant, ref)
	if err == nil {
		err = c.dropObject(ctx, name)
	}
	if err != nil {
		c.opts.Log.DebugContext(ctx, "unneeded data not removed", "tenant", tenant, "error", err)
	}
}

// dropObject removes an object, if it exists.
func (c *Client) dropObject(ctx context.Context, name string) error {
	store, err := c.js.ObjectStore(ctx, bucketObjects)
	if err == nil {
		err = store.Delete(ctx, name)
	}
	if err != nil && !objectMissing(err) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}
