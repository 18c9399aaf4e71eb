package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const bucketAutomations = "AUTOMATIONS"

// Errors of Automations.
var (
	ErrAutomationNotFound = errors.New("no such automation")
	ErrAutomationConflict = errors.New("automation has a different revision")
)

// Automations is the bucket in which the schedules, triggers and webhooks of all tenants are stored, and the alarms of
// their workflow runs. Each is a small JSON document, which is changed by compare-and-swap. It is safe for concurrent
// use.
type Automations struct {
	kv jetstream.KeyValue
	c  *Client
}

// Automation is one document. Kind, tenant and name identify it, and must be valid names.
type Automation struct {
	Kind, Tenant, Name string
	Data               []byte    // nil in a watch if the document was deleted
	Revision           uint64    // unique in the bucket, and increasing
	ChangedAt          time.Time // not set by Get
	Pending            uint64    // in a watch: how many changes are known to follow
}

func (a Automation) key() string { return a.Kind + "." + a.Tenant + "." + a.Name }

// markerTime is how long the bucket keeps the marker of a deleted document, from which watchers learn of the deletion.
const markerTime = time.Hour

func (c *Client) provisionAutomations(ctx context.Context, replicas int) error {
	return c.provisionBucket(ctx, jetstream.KeyValueConfig{
		Bucket: bucketAutomations, Description: "schedules, triggers and webhooks", History: 1,
		Storage: jetstream.FileStorage, Replicas: replicas, LimitMarkerTTL: markerTime,
	})
}

// Automations opens the bucket that Provision creates.
func (c *Client) Automations(ctx context.Context) (*Automations, error) {
	kv, err := c.js.KeyValue(ctx, bucketAutomations)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", bucketAutomations, err)
	}
	return &Automations{kv, c}, nil
}

// Now returns the time of the NATS server, which is the same for all processes, and the latest revision in the bucket.
func (b *Automations) Now(ctx context.Context) (now time.Time, latest uint64, err error) {
	status, err := b.kv.Status(ctx)
	if err != nil {
		return now, 0, fmt.Errorf("read the time of NATS: %w", err)
	}
	bucket, ok := status.(*jetstream.KeyValueBucketStatus)
	if !ok || bucket.StreamInfo().TimeStamp.IsZero() {
		return now, 0, errors.New("read the time of NATS: the server sent none")
	}
	return bucket.StreamInfo().TimeStamp, bucket.StreamInfo().State.LastSeq, nil
}

// Get returns a document, or ErrAutomationNotFound.
func (b *Automations) Get(ctx context.Context, kind, tenant, name string) (Automation, error) {
	a := Automation{Kind: kind, Tenant: tenant, Name: name}
	last, err := b.c.keyOfLeader(ctx, bucketAutomations, a.key())
	if err == nil && len(last.Data) == 0 {
		err = ErrAutomationNotFound
	}
	if err != nil {
		return a, fmt.Errorf("%s %s: %w", kind, name, err)
	}
	a.Data, a.Revision = last.Data, last.Seq
	return a, nil
}

// Swap writes a's data if the document still has a's revision, and returns the new revision. Revision 0 means that the
// document does not exist. After ErrAutomationConflict nothing was written; after any other error, the data may have
// been written.
func (b *Automations) Swap(ctx context.Context, a Automation) (uint64, error) {
	next, err := swapKey(ctx, b.kv, a.key(), a.Data, a.Revision)
	if errors.Is(err, errStale) {
		err = ErrAutomationConflict
	}
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", a.Kind, a.Name, err)
	}
	return next, nil
}

// Delete removes a document. It returns nil if the document does not exist.
func (b *Automations) Delete(ctx context.Context, kind, tenant, name string) error {
	a := Automation{Kind: kind, Tenant: tenant, Name: name}
	if err := b.kv.Purge(ctx, a.key(), jetstream.PurgeTTL(markerTime)); err != nil {
		return fmt.Errorf("%s %s: %w", kind, name, err)
	}
	return nil
}

// List returns a tenant's documents of one kind, in the order of their last change.
func (b *Automations) List(ctx context.Context, kind, tenant string) ([]Automation, error) {
	entries, err := keysOf(ctx, b.kv, kind+"."+tenant+".*")
	if err != nil {
		return nil, fmt.Errorf("list %ss: %w", kind, err)
	}
	out := make([]Automation, 0, len(entries))
	for _, e := range entries {
		if a, ok := automationOf(e); ok {
			out = append(out, a)
		}
	}
	return out, nil
}

// Count returns the number of a tenant's documents of one kind.
func (b *Automations) Count(ctx context.Context, kind, tenant string) (n int, err error) {
	w, err := b.kv.Watch(ctx, kind+"."+tenant+".*", jetstream.IgnoreDeletes(), jetstream.MetaOnly())
	if err != nil {
		return 0, fmt.Errorf("count %ss: %w", kind, err)
	}
	defer endWatch(w)
	for {
		e, err := nextUpdate(ctx, w)
		if err != nil {
			return 0, fmt.Errorf("count %ss: %w", kind, err)
		}
		if e == nil {
			return n, nil
		}
		n++
	}
}

// Watch calls fn for each document of all tenants, and then for each change, until ctx ends or the connection is
// closed. After the existing documents it calls fn once with an empty Kind: Revision is then the bucket's latest one
// when Watch began, and Pending the number of changes that still follow. After these changes, fn has got all changes up
// to Revision, except those that a later change of the same document replaced. fn must not block.
func (b *Automations) Watch(ctx context.Context, fn func(Automation)) error {
	_, latest, err := b.Now(ctx)
	if err != nil {
		return err
	}
	w, err := b.kv.WatchAll(ctx)
	if err != nil {
		return fmt.Errorf("watch automations: %w", err)
	}
	defer endWatch(w)
	var pending uint64
	for {
		e, err := nextUpdate(ctx, w)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("watch automations: %w", err)
		case e == nil:
			fn(Automation{Revision: latest, Pending: pending})
			continue
		}
		pending = e.Delta()
		if a, ok := automationOf(e); ok {
			fn(a)
		}
	}
}

func automationOf(e jetstream.KeyValueEntry) (Automation, bool) {
	part := strings.Split(e.Key(), ".")
	if len(part) != 3 {
		return Automation{}, false
	}
	a := Automation{
		Kind: part[0], Tenant: part[1], Name: part[2], Revision: e.Revision(), ChangedAt: e.Created(),
		Pending: e.Delta(),
	}
	if e.Operation() == jetstream.KeyValuePut {
		a.Data = e.Value()
	}
	return a, true
}
