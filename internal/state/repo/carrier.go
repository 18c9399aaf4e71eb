package repo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// carrier is an object store that also has the objects that HEADs carried when this process last read them. If a later
// HEAD no longer carries an object, the object was stored before HEAD was swapped. So a reader of an older HEAD finds
// it, too.
type carrier struct {
	objects.Objects

	reread func(context.Context, format.Ref) error // reads HEAD

	mu    sync.Mutex
	heads map[format.Ref]*carriedHead
	order []format.Ref // keys of heads, in the order in which the HEADs were read
	bytes int          // bytes in memory
	limit int          // the most bytes to have in memory
	// evicted are the workspaces whose objects were evicted from memory. Their HEADs may still carry them.
	evicted map[format.Ref]bool
}

// carriedHead is what a workspace's HEAD carried when this process last read or swapped it.
type carriedHead struct {
	generation int64
	carried    []format.Carried
	objects    map[string][]byte // the objects in carried, by key
	bytes      int
	stored     map[string]time.Time // when this process last stored each object, by key
}

const (
	maxCarriedBytes = 64 << 20 // limit of the carried objects in memory
	// storedFor is how long this process trusts that an object that it has stored still exists. A garbage collection
	// may remove the object, and a later HEAD may carry the same bytes again, unnoticed by this process. But no garbage
	// collection removes an object within its grace time, which is much longer.
	storedFor = time.Hour
)

func (h *carriedHead) isStored(key string) bool {
	at, ok := h.stored[key]
	return ok && time.Since(at) < storedFor
}

// readCarried makes r.Bucket the object store `bucket` with the objects that HEADs carry.
func (r *Repo) readCarried(bucket objects.Objects) {
	r.carrier = &carrier{
		Objects: bucket, limit: maxCarriedBytes, heads: map[format.Ref]*carriedHead{}, evicted: map[format.Ref]bool{},
		reread: func(ctx context.Context, ref format.Ref) error {
			_, _, err := r.ReadHead(ctx, ref, "")
			return err
		},
	}
	r.Bucket = r.carrier
}

// observe records what a HEAD carries.
func (c *carrier) observe(ref format.Ref, h *format.Head) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.evicted, ref)
	old := c.heads[ref]
	if old == nil && len(h.Carried) == 0 || old != nil && old.generation > h.Generation {
		return
	}
	c.drop(ref)
	if len(h.Carried) == 0 {
		return
	}
	read := &carriedHead{
		generation: h.Generation, carried: h.Carried, objects: map[string][]byte{}, stored: map[string]time.Time{},
	}
	for i := range h.Carried {
		key := h.Carried[i].Key(ref)
		read.objects[key] = h.Carried[i].Data
		read.bytes += len(h.Carried[i].Data)
		if old != nil && old.isStored(key) {
			read.stored[key] = old.stored[key]
		}
	}
	c.heads[ref], c.order = read, append(c.order, ref)
	for c.bytes += read.bytes; c.bytes > c.limit && len(c.order) > 1; {
		c.evicted[c.order[0]] = true
		c.drop(c.order[0])
	}
}

// forget drops the carried objects of a workspace whose HEAD is gone.
func (c *carrier) forget(ref format.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.evicted, ref)
	c.drop(ref)
}

// drop removes a workspace's objects from memory. The caller holds c.mu.
func (c *carrier) drop(ref format.Ref) {
	if old := c.heads[ref]; old != nil {
		c.bytes -= old.bytes
		delete(c.heads, ref)
		c.order = slices.DeleteFunc(c.order, func(o format.Ref) bool { return o == ref })
	}
}

// markStored records that a carried object is stored.
func (c *carrier) markStored(ref format.Ref, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.heads[ref]; h != nil && h.objects[key] != nil {
		h.stored[key] = time.Now()
	}
}

// unstored returns the objects of carried that this process has not stored.
func (c *carrier) unstored(ref format.Ref, carried []format.Carried) []format.Carried {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.heads[ref]
	return slices.DeleteFunc(slices.Clone(carried), func(o format.Carried) bool {
		return h != nil && h.isStored(o.Key(ref))
	})
}

// status returns what a workspace's HEAD carries, and whether this process has stored some of it. If that was evicted
// from memory, evicted is true instead.
func (c *carrier) status(ref format.Ref) (carried []format.Carried, stored, evicted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.heads[ref]
	if h == nil {
		return nil, false, c.evicted[ref]
	}
	return h.carried, len(h.stored) > 0, false
}

// refOf returns the workspace of the object at key. For a pack, which belongs to no workspace, it sets only the tenant.
func refOf(key string) format.Ref {
	parts := strings.SplitN(key, "/", 4)
	if len(parts) == 4 && parts[1] == "w" {
		return format.Ref{Tenant: parts[0], Workspace: parts[2]}
	}
	return format.Ref{Tenant: parts[0]}
}

// find returns the carried object at key. If it is not in memory, find returns the evicted workspaces whose HEADs may
// carry it.
func (c *carrier) find(key string) (data []byte, evicted []format.Ref) {
	at := refOf(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.Workspace != "" {
		if h := c.heads[at]; h != nil && h.objects[key] != nil {
			return h.objects[key], nil
		}
		if c.evicted[at] {
			evicted = append(evicted, at)
		}
		return nil, evicted
	}
	for ref, h := range c.heads {
		if ref.Tenant == at.Tenant && h.objects[key] != nil {
			return h.objects[key], nil
		}
	}
	for ref := range c.evicted {
		if ref.Tenant == at.Tenant {
			evicted = append(evicted, ref)
		}
	}
	return nil, evicted
}

// Get implements objects.Objects.
func (c *carrier) Get(ctx context.Context, key string, o objects.GetOptions) (objects.Object, error) {
	if strings.HasSuffix(key, "/HEAD") {
		return c.Objects.Get(ctx, key, o)
	}
	data, evicted := c.find(key)
	if data != nil {
		return part(key, data, o)
	}
	obj, err := c.Objects.Get(ctx, key, o)
	if !errors.Is(err, objects.ErrNotFound) || len(evicted) == 0 {
		return obj, err
	}
	for _, ref := range evicted {
		if err := c.reread(ctx, ref); err != nil {
			return objects.Object{}, err
		}
		if data, _ := c.find(key); data != nil {
			return part(key, data, o)
		}
	}
	return c.Objects.Get(ctx, key, o) // it may have been stored in the meantime
}

// part returns the range of a carried object that o selects.
func part(key string, data []byte, o objects.GetOptions) (objects.Object, error) {
	end := int64(len(data))
	if o.Length > 0 {
		end = o.Offset + o.Length
	}
	if o.Offset < 0 || o.Offset > end || end > int64(len(data)) {
		return objects.Object{}, fmt.Errorf("get %s: range %d+%d of %d bytes", key, o.Offset, o.Length, len(data))
	}
	return objects.Object{Data: append(o.Buffer[:0], data[o.Offset:end]...), Modified: time.Now()}, nil
}

// List implements objects.Objects. Carried objects have the time of the call.
func (c *carrier) List(ctx context.Context, prefix, after string) iter.Seq2[objects.ObjectInfo, error] {
	return func(yield func(objects.ObjectInfo, error) bool) {
		carried := c.list(prefix, after) // before c.Objects.List, which finds those that are stored meanwhile
		for info, err := range c.Objects.List(ctx, prefix, after) {
			if err != nil {
				yield(objects.ObjectInfo{}, err)
				return
			}
			for len(carried) > 0 && carried[0].Key <= info.Key {
				if carried[0].Key < info.Key && !yield(carried[0], nil) {
					return
				}
				carried = carried[1:]
			}
			if !yield(info, nil) {
				return
			}
		}
		for _, info := range carried {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// list returns the carried objects whose keys start with prefix and are greater than after, sorted by key.
func (c *carrier) list(prefix, after string) []objects.ObjectInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string]objects.ObjectInfo{} // two workspaces may carry the same pack
	for _, h := range c.heads {
		for key, data := range h.objects {
			if strings.HasPrefix(key, prefix) && key > after {
				found[key] = objects.ObjectInfo{Key: key, Size: int64(len(data)), Modified: time.Now()}
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b objects.ObjectInfo) int { return cmp.Compare(a.Key, b.Key) })
}
