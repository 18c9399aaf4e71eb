// Package storage opens the fleet's object store and workspace store from settings.
package storage

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/state/mirror"
	"github.com/codefleet/codefleet/internal/state/s3"
)

// openBucket opens a bucket of the object store.
func openBucket(c *config.Config, bucket, prefix string) (*s3.Objects, error) {
	return s3.Open(s3.Options{
		Endpoint: c.S3.Endpoint, Region: c.S3.Region, Bucket: bucket, Prefix: prefix,
		AccessKey: c.S3.AccessKey, SecretKey: string(c.S3.SecretKey),
	})
}

// Objects opens the fleet's bucket, with the head mode that s3.heads selects.
func Objects(c *config.Config) (objects.Objects, error) {
	bucket, err := openBucket(c, c.S3.Bucket, c.S3.Prefix)
	if err != nil {
		return nil, err
	}
	return withHeads(c, following(c, bucket))
}

// following returns a store that is at first the fleet's bucket, and follows the fleet to another address or to other
// credentials, see config.Rejoin.
func following(c *config.Config, bucket objects.Objects) objects.Objects {
	used := c.S3
	return objects.Reopening(bucket, func() objects.Objects {
		now, ok := c.Rejoin()
		if !ok || now.S3 == used {
			return nil
		}
		next, err := openBucket(now, now.S3.Bucket, now.S3.Prefix)
		if err != nil {
			return nil // fleet.json is wrong: the fleet may write it again
		}
		used = now.S3
		return next
	})
}

// Open opens the workspace store. cache is a directory that only this process uses, or "" for no cache. carry is
// state.Options.Carry.
func Open(c *config.Config, cache string, log *slog.Logger, carry func() bool) (*state.Store, error) {
	bucket, err := Objects(c)
	if err != nil {
		return nil, err
	}
	o := state.Options{
		CacheDir: cache, Log: log, Carry: carry, StateFile: c.DefaultState(),
		Quota:  state.Quota{Bytes: c.Limits.WorkspaceMB << 20},
		Layout: []string{"skills", "sessions", "state"}, // beside servers and client, which boxes mount
	}
	if guest := executor.DefaultGuest(); os.Geteuid() == 0 { // programs run as this user when the worker is root
		o.Owner = &state.Owner{UID: guest.UID, GID: guest.UID}
	}
	o.Secrets = func(tenant string) state.Secrets { return secrets(c, tenant) }
	return state.New(bucket, o), nil
}

// Mirror returns the configured mirror, which follows the commits to store, or nil if there is none.
func Mirror(c *config.Config, store *state.Store) (*mirror.Mirror, error) {
	if c.Workspaces.Mirror == "" {
		return nil, nil
	}
	bucket, prefix, err := c.Workspaces.MirrorAt()
	if err != nil {
		return nil, fmt.Errorf("workspaces.mirror: %w", err)
	}
	target, err := openBucket(c, bucket, prefix)
	if err != nil {
		return nil, err
	}
	return mirror.Follow(store.Repo(), target, mirror.Options{}), nil
}

// secrets returns the secrets that encrypt a tenant's workspaces.
func secrets(c *config.Config, tenant string) state.Secrets {
	current, old := c.EncryptionOf(tenant)
	s := state.Secrets{Current: []byte(current)}
	for _, o := range old {
		s.Old = append(s.Old, []byte(o))
	}
	return s
}

// CollectOptions returns the options of garbage collection.
func CollectOptions(c *config.Config) maintenance.GCOptions {
	w := c.Workspaces
	retention := maintenance.Retention{Newest: w.KeepNewest, All: max(w.KeepAll, 1), Daily: w.KeepDays}
	if w.KeepDays == 0 {
		retention.Daily = -1
	}
	return maintenance.GCOptions{Retention: retention, Grace: w.Grace, Inactive: w.Inactive, Deleted: w.KeepDeleted}
}
