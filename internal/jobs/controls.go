package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// Controls are what operators have set at run time, such as pauses. The bucket CONTROLS keeps them, so they survive
// restarts; every worker and every ingest follows it.

// Keys of CONTROLS.
const (
	pauseKey  = "pause."  // pause.fleet, pause.pool.<pool>, pause.tenant.<tenant>
	limitsKey = "limits." // limits.<tenant>
	tenantKey = "tenant." // tenant.<name>, which an operator has created
	drainKey  = "drain."  // drain.<encoded name of a worker>
)

// controls is a copy of CONTROLS. It is not changed once it is stored in Client.controls.
type controls struct {
	pauses map[string]schemas.Pause        // by target
	limits map[string]schemas.TenantLimits // by tenant

	tenants map[string]schemas.Tenant // by name
	drains  map[string]drainOrder     // by the encoded name of the worker
}

func newControls() *controls {
	return &controls{
		pauses: map[string]schemas.Pause{}, limits: map[string]schemas.TenantLimits{},
		tenants: map[string]schemas.Tenant{}, drains: map[string]drainOrder{},
	}
}

// pauseOf returns the pause that holds a lane, if any.
func (s *controls) pauseOf(l lane) (schemas.Pause, bool) {
	if s == nil || len(s.pauses) == 0 {
		return schemas.Pause{}, false
	}
	for _, target := range []string{schemas.PauseFleet, "pool/" + l.pool, "tenant/" + l.tenant} {
		if p, ok := s.pauses[target]; ok {
			return p, true
		}
	}
	return schemas.Pause{}, false
}

func (s *controls) clone() *controls {
	return &controls{
		pauses: maps.Clone(s.pauses), limits: maps.Clone(s.limits), tenants: maps.Clone(s.tenants),
		drains: maps.Clone(s.drains),
	}
}

// set changes the value of a key. A nil value removes the key.
func (s *controls) set(key string, value []byte) error {
	if target, ok := targetOf(key); ok {
		return setKey(s.pauses, target, value)
	}
	kind, name, _ := strings.Cut(key, ".")
	switch kind + "." {
	case limitsKey:
		return setKey(s.limits, name, value)
	case tenantKey:
		return setKey(s.tenants, name, value)
	case drainKey:
		return setKey(s.drains, name, value)
	}
	return nil // a control of a later version
}

// setKey decodes value into an element of a map, or deletes the element if value is nil.
func setKey[T any](m map[string]T, key string, value []byte) error {
	delete(m, key)
	if value == nil {
		return nil
	}
	var v T
	if err := json.Unmarshal(value, &v); err != nil {
		return err
	}
	m[key] = v
	return nil
}

func pauseKeyOf(target string) string { return pauseKey + strings.ReplaceAll(target, "/", ".") }

func targetOf(key string) (target string, ok bool) {
	rest, ok := strings.CutPrefix(key, pauseKey)
	target = strings.Replace(rest, ".", "/", 1)
	return target, ok && schemas.CheckTarget(target) == nil
}

func (c *Client) provisionControls(ctx context.Context, replicas int) error {
	return c.provisionBucket(ctx, jetstream.KeyValueConfig{
		Bucket: bucketControls, Description: "what operators have set at run time", Storage: jetstream.FileStorage,
		History: 1, Replicas: replicas,
	})
}

// FollowControls keeps the client's copy of the controls up to date until ctx ends. It calls changed, if that is not
// nil, after the first read and after each change.
func (c *Client) FollowControls(ctx context.Context, changed func()) {
	c.followBucket(ctx, bucketControls, func() (func(jetstream.KeyValueEntry), func()) {
		next, stored := newControls(), false
		apply := func(e jetstream.KeyValueEntry) {
			if stored { // the stored copy must not change
				next, stored = next.clone(), false
			}
			if err := next.set(e.Key(), valueOf(e)); err != nil {
				c.opts.Log.WarnContext(ctx, "control not understood", "key", e.Key(), "error", err)
			}
		}
		return apply, func() {
			stored = true
			c.controls.Store(next)
			if changed != nil {
				changed()
			}
		}
	})
}

// followBucket reads a bucket and follows it until ctx ends. After an interruption it reads the whole bucket again. It
// calls begin before each such read, then apply with each value, and complete once the existing values have been
// applied and after later ones.
func (c *Client) followBucket(
	ctx context.Context, bucket string, begin func() (apply func(jetstream.KeyValueEntry), complete func()),
) {
	out := &outage{
		log: c.opts.Log.With("bucket", bucket), failed: "reading of bucket failed",
		again: "reading of bucket succeeded again",
	}
	for ctx.Err() == nil {
		apply, complete := begin()
		if err := c.watchBucket(ctx, bucket, apply, func() { out.report(ctx, nil); complete() }); err != nil {
			out.report(ctx, err)
			_ = clock.Sleep(ctx, time.Second) // the loop ends with ctx
		}
	}
}

// watchBucket follows the bucket until ctx ends or the connection was lost and restored.
func (c *Client) watchBucket(
	ctx context.Context, bucket string, apply func(jetstream.KeyValueEntry), complete func(),
) error {
	kv, err := c.js.KeyValue(ctx, bucket)
	if err != nil {
		return err
	}
	connected := c.nc.StatusChanged(nats.CONNECTED)
	defer c.nc.RemoveStatusListener(connected)
	w, err := kv.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer endWatch(w)
	for read := false; ; {
		select {
		case e, open := <-w.Updates():
			switch {
			case !open:
				return errors.New("the watch of the bucket was closed")
			case e == nil: // the end of the values that were there
				read = true
			default:
				apply(e)
			}
			if read && len(w.Updates()) == 0 { // only once for many changes
				complete()
			}
		case <-connected: // changes may have been lost
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// nextUpdate returns the next update of a watch. It is nil after the last of the values that were there. If ctx has
// ended, which ends the watch, the error is ctx's cause.
func nextUpdate(ctx context.Context, w jetstream.KeyWatcher) (jetstream.KeyValueEntry, error) {
	select {
	case e, open := <-w.Updates():
		if !open {
			return nil, cmp.Or(context.Cause(ctx), errors.New("the connection was closed"))
		}
		return e, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// endWatch ends a watch without waiting for the server: a worker whose queue hangs must exit, and the server removes
// the watch's consumer anyway.
func endWatch(w jetstream.KeyWatcher) {
	go func() { _ = w.Stop() }() // ends after five seconds, or when the connection is closed
}

// valueOf returns the value of a key, or nil if the key was removed.
func valueOf(e jetstream.KeyValueEntry) []byte {
	if e.Operation() != jetstream.KeyValuePut {
		return nil
	}
	return e.Value()
}

// Pause stops workers from starting tasks of p.Target, and returns the stored pause. They finish the tasks that run.
// Another pause of the target replaces the first. The error is a *RefusedError if p is not valid.
func (c *Client) Pause(ctx context.Context, p schemas.Pause) (schemas.Pause, error) {
	if err := c.checkTarget(ctx, p.Target); err != nil {
		return p, err
	}
	if err := checkText(p.Reason); err != nil || len(p.Reason) > schemas.MaxReason {
		err = cmp.Or(err, fmt.Errorf("longer than %d bytes", schemas.MaxReason))
		return p, refuse(errcode.BadData, "/reason", "%s", err)
	}
	p.Since = time.Now().UTC().Truncate(time.Millisecond)
	return p, c.putControl(ctx, pauseKeyOf(p.Target), p)
}

// Resume ends a pause. It reports whether the target was paused.
func (c *Client) Resume(ctx context.Context, target string) (wasPaused bool, err error) {
	if err := schemas.CheckTarget(target); err != nil {
		return false, refuse(errcode.BadName, "/target", "%s", err)
	}
	return c.dropControl(ctx, pauseKeyOf(target))
}

// Pauses returns all pauses, sorted by target.
func (c *Client) Pauses(ctx context.Context) ([]schemas.Pause, error) {
	s, err := c.readControls(ctx, pauseKey+">")
	if err != nil {
		return nil, err
	}
	byTarget := func(a, b schemas.Pause) int { return cmp.Compare(a.Target, b.Target) }
	return slices.SortedFunc(maps.Values(s.pauses), byTarget), nil
}

// checkTarget returns a *RefusedError unless target can be paused.
func (c *Client) checkTarget(ctx context.Context, target string) error {
	if err := schemas.CheckTarget(target); err != nil {
		return refuse(errcode.BadName, "/target", "%s", text.Truncate(err.Error(), maxText))
	}
	if tenant, ok := strings.CutPrefix(target, "tenant/"); ok {
		return c.checkTenant(ctx, "/target", tenant)
	}
	return nil
}

// checkTenant returns a *RefusedError unless the fleet has the tenant.
func (c *Client) checkTenant(ctx context.Context, path, tenant string) error {
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return refuse(errcode.BadName, path, "%s", text.Truncate(err.Error(), maxText))
	}
	policy, err := c.withCreated(ctx, c.opts.Policy, tenant)
	if err != nil || policy == nil {
		return err
	}
	if _, known := policy(tenant); !known {
		return refuse(errcode.UnknownTenant, path, "tenant %s is not known to this fleet", tenant)
	}
	return nil
}

// readControls reads the controls whose keys match one of the filters. It does not read all of them, because there may
// be many tenants.
func (c *Client) readControls(ctx context.Context, filters ...string) (*controls, error) {
	s := newControls()
	kv, err := c.js.KeyValue(ctx, bucketControls)
	for _, filter := range filters {
		var entries []jetstream.KeyValueEntry
		if err == nil {
			entries, err = keysOf(ctx, kv, filter)
		}
		for _, e := range entries {
			if err == nil {
				err = s.set(e.Key(), e.Value())
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read controls: %w", err)
	}
	return s, nil
}

func (c *Client) putControl(ctx context.Context, key string, v any) error {
	data, err := json.Marshal(v)
	var kv jetstream.KeyValue
	if err == nil {
		kv, err = c.js.KeyValue(ctx, bucketControls)
	}
	if err == nil {
		_, err = kv.Put(ctx, key, data)
	}
	if err != nil {
		return fmt.Errorf("write control %s: %w", key, err)
	}
	return nil
}

// dropControl removes a key. It reports whether the key existed.
func (c *Client) dropControl(ctx context.Context, key string) (existed bool, err error) {
	last, err := c.keyOfLeader(ctx, bucketControls, key)
	if err == nil && len(last.Data) == 0 {
		return false, nil
	}
	var kv jetstream.KeyValue
	if err == nil {
		kv, err = c.js.KeyValue(ctx, bucketControls)
	}
	if err == nil {
		err = kv.Purge(ctx, key)
	}
	if err != nil {
		return false, fmt.Errorf("remove control %s: %w", key, err)
	}
	return true, nil
}
