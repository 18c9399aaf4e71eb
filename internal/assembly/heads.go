package assembly

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/telemetry"
)

// withHeads is the object store with its heads kept as s3.heads says.
func withHeads(c *config.Config, bucket objects.Objects) (objects.Objects, error) {
	switch c.S3.Heads {
	case config.HeadsCreate:
		return state.WithHeads(bucket, state.CreateOnly(bucket)), nil
	case config.HeadsNATS:
		if c.NATS.URL == "" {
			return nil, errors.New("s3.heads is nats, and nats.url is empty: say where the queue's server is")
		}
		return state.WithHeads(bucket, &natsHeads{config: c}), nil
	case config.HeadsSingleWriter:
		return state.WithHeads(bucket, state.SingleWriter(bucket, hostLock(c))), nil
	default:
		return bucket, nil
	}
}

// CheckStore tries what workspaces need of the object store that the settings name, and refuses one
// whose heads the settings cannot keep safe. The embedded store needs no trial.
func CheckStore(ctx context.Context, c *config.Config, store *state.Store) error {
	if c.S3.Embedded && c.S3.Heads == config.HeadsCAS {
		return nil
	}
	caps, err := store.Probe(ctx)
	if errors.Is(err, objects.ErrUnsafe) {
		return fmt.Errorf("object store %s: %w (set s3.heads: %s)", c.S3.Endpoint, err, WaysOut(caps))
	}
	if err != nil {
		return fmt.Errorf("object store %s: %w", c.S3.Endpoint, err)
	}
	return store.Agree(ctx, c.S3.Heads)
}

// WaysOut are the values of s3.heads that work on a store which does not honour all conditional
// writes, for a sentence.
func WaysOut(caps state.Capabilities) string {
	out := config.HeadsNATS + ", or " + config.HeadsSingleWriter + " when one host writes"
	if caps.CanCreate() {
		out = config.HeadsCreate + ", " + out
	}
	return out
}

// lockEvery is how often a lock that another process has is tried again.
const lockEvery = 2 * time.Millisecond

// hostLock keeps out other writers on this host, of this process and of others that have the same
// data directory.
func hostLock(c *config.Config) func(context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		f, err := os.OpenFile(filepath.Join(c.Data, "heads.lock"), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		again := time.NewTicker(lockEvery)
		defer again.Stop()
		for {
			err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
			if err == nil {
				return func() { f.Close() }, nil
			}
			if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
				return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
			}
			select {
			case <-again.C:
			case <-ctx.Done():
				f.Close()
				return nil, context.Cause(ctx)
			}
		}
	}
}

// openHeads connects to the queue, for the life of the process.
func openHeads(c *config.Config) (*jobs.HeadBucket, error) {
	ctx := context.Background() // of the process; each request has its own
	t, err := telemetry.Setup(ctx, telemetry.Options{Log: telemetry.LogOptions{Output: io.Discard}})
	if err != nil {
		return nil, err
	}
	o, err := Jobs(c, t, "codefleet heads")
	if err != nil {
		return nil, err
	}
	client, err := jobs.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	heads, err := client.OpenHeadBucket(ctx)
	if err != nil {
		client.Close()
	}
	return heads, err
}

// natsHeads keeps heads in the queue's server, over a connection that the first request makes.
type natsHeads struct {
	config *config.Config

	mu   sync.Mutex
	open *jobs.HeadBucket
}

func (n *natsHeads) connect() (*jobs.HeadBucket, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open != nil {
		return n.open, nil
	}
	var err error
	n.open, err = openHeads(n.config)
	return n.open, err
}

func (n *natsHeads) Get(ctx context.Context, key, version string) (objects.Object, error) {
	heads, err := n.connect()
	if err != nil {
		return objects.Object{}, temporary(err)
	}
	h, err := heads.Get(ctx, key)
	switch {
	case errors.Is(err, jobs.ErrHeadNotFound):
		return objects.Object{}, fmt.Errorf("%w: %w", state.ErrNotFound, err)
	case err != nil:
		return objects.Object{}, temporary(err)
	case version == strconv.FormatUint(h.Revision, 10):
		return objects.Object{}, fmt.Errorf("get %s: %w", key, objects.ErrNotModified)
	}
	return objects.Object{Data: h.Data, ETag: strconv.FormatUint(h.Revision, 10), Modified: h.Modified}, nil
}

func (n *natsHeads) CompareAndSwap(ctx context.Context, key, version string, data []byte) (string, error) {
	heads, err := n.connect()
	if err != nil {
		return "", temporary(err)
	}
	revision := uint64(0)
	if version != "" {
		if revision, err = strconv.ParseUint(version, 10, 64); err != nil || revision == 0 {
			return "", fmt.Errorf("swap %s: version %q: %w", key, version, state.ErrConflict)
		}
	}
	revision, err = heads.Swap(ctx, key, revision, data)
	if errors.Is(err, jobs.ErrHeadConflict) {
		return "", fmt.Errorf("%w: %w", state.ErrConflict, err)
	}
	if err != nil {
		return "", temporary(err)
	}
	return strconv.FormatUint(revision, 10), nil
}

func (n *natsHeads) List(ctx context.Context, prefix string) ([]objects.ObjectInfo, error) {
	heads, err := n.connect()
	if err != nil {
		return nil, temporary(err)
	}
	all, err := heads.List(ctx, prefix)
	if err != nil {
		return nil, temporary(err)
	}
	out := make([]objects.ObjectInfo, len(all))
	for i, h := range all {
		out[i] = objects.ObjectInfo{Key: h.Key, Size: int64(len(h.Data)), Modified: h.Modified}
	}
	return out, nil
}

func (n *natsHeads) Delete(ctx context.Context, key string) error {
	heads, err := n.connect()
	if err == nil {
		err = heads.Delete(ctx, key)
	}
	return temporary(err)
}

// temporary says of every error of the queue that it may be tried again.
func temporary(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", objects.ErrTemporary, err)
}
