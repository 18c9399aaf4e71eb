package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/clock"
)

// clusterReplicas is the default number of replicas in a cluster: a task survives the loss of any one server.
const clusterReplicas = 3

// clustered reports whether the client has been connected to a cluster. A replica then may lag behind its stream's
// leader. clustered remembers this, because the cluster's name is empty while the client reconnects, and the response
// of a replica may have arrived just before. Connect calls it first.
func (c *Client) clustered() bool {
	if c.nc.ConnectedClusterName() != "" {
		c.inCluster.Store(true)
	}
	return c.inCluster.Load()
}

// replicas returns the minimum number of replicas of each stream: the option's, or else clusterReplicas in a cluster
// that has enough servers, or else 1. To find out whether it has, replicas provisions the bucket CURSORS.
func (c *Client) replicas(ctx context.Context) (int, error) {
	n := c.opts.Storage.Replicas
	if n > 0 && n < clusterReplicas && c.clustered() {
		c.warnReplicas.Do(func() {
			c.opts.Log.WarnContext(ctx, "tasks stored on one server of the NATS cluster only", "replicas", n)
		})
	}
	if n > 0 || !c.clustered() {
		return max(1, n), nil
	}
	err := c.provisionCursors(ctx, clusterReplicas) // fails if the cluster has too few servers
	if isTooFewServers(err) {
		c.warnReplicas.Do(func() {
			c.opts.Log.WarnContext(ctx, "tasks stored on one server only: the NATS cluster has fewer than three "+
				"servers that are online and have space")
		})
		return 1, nil
	}
	return clusterReplicas, err
}

// isTooFewServers reports whether the server refused a stream because too few servers are suitable: a suitable one is
// online and has space, for example.
func isTooFewServers(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == codeNoPeers || api.ErrorCode == codeInsufficientResources)
}

// isTooLittleSpace reports whether the server refused a stream because it has reserved as much as its disk has. In a
// cluster, that may be so of all suitable servers.
func isTooLittleSpace(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == codeInsufficientStorage ||
		api.ErrorCode == codeNoPeers && strings.Contains(api.Description, "insufficient storage"))
}

const (
	codeNoPeers               = 10005
	codeInsufficientResources = 10023
	codeInsufficientStorage   = 10047
)

// currentReplicas returns the number of replicas of a stream, or 0 if it does not exist.
func (c *Client) currentReplicas(ctx context.Context, stream string) (int, error) {
	info, err := c.streamInfo(ctx, stream)
	if info == nil {
		return 0, err
	}
	return info.Config.Replicas, nil
}

// provisionStream creates or updates a stream. It does not lower the number of replicas.
func (c *Client) provisionStream(ctx context.Context, conf jetstream.StreamConfig) error {
	current, err := c.currentReplicas(ctx, conf.Name)
	if err == nil {
		conf.Replicas = max(conf.Replicas, current)
		if conf.PersistMode == jetstream.AsyncPersistMode {
			err = c.provisionUnsynced(ctx, conf)
		} else {
			err = c.createOrUpdate(ctx, conf)
		}
	}
	return provisionError("stream "+conf.Name, conf.Replicas, err)
}

// minReserved is the limit in bytes at which createOrUpdate gives up creating a stream, instead of lowering the limit
// further.
const minReserved = 16 << 20

// createOrUpdate creates or updates a stream. The server reserves conf.MaxBytes; if it cannot, an existing stream keeps
// its limit, or all of its settings if the server refuses that too, and createOrUpdate lowers the limit of a new one so
// that about half of the free space remains for others.
func (c *Client) createOrUpdate(ctx context.Context, conf jetstream.StreamConfig) error {
	lowered := false
	for {
		_, err := c.js.CreateOrUpdateStream(ctx, conf)
		switch {
		case err == nil && lowered:
			conf.MaxBytes, lowered = conf.MaxBytes/2, false
		case !isTooLittleSpace(err):
			return err
		default:
			info, infoErr := c.streamInfo(ctx, conf.Name)
			switch {
			case infoErr == nil && info == nil && conf.MaxBytes > minReserved:
				conf.MaxBytes, lowered = conf.MaxBytes/2, true
			case infoErr == nil && info != nil && 0 < info.Config.MaxBytes && info.Config.MaxBytes < conf.MaxBytes:
				conf.MaxBytes = info.Config.MaxBytes // an update that reserves no more may succeed
			default:
				return c.keep(ctx, conf.Name, err)
			}
		}
	}
}

// keep returns nil instead of err if the server refused to update a stream because more is reserved than its disk now
// has: the stream then keeps its settings, which are those of this or an earlier version.
func (c *Client) keep(ctx context.Context, stream string, err error) error {
	if !isTooLittleSpace(err) {
		return err
	}
	info, infoErr := c.streamInfo(ctx, stream)
	if info == nil {
		return errors.Join(err, infoErr)
	}
	c.opts.Log.WarnContext(ctx, "stream not updated: the NATS server has too little free disk space", "stream", stream)
	return nil
}

// provisionError wraps err with what could not be provisioned. It returns nil if err is nil.
func provisionError(what string, replicas int, err error) error {
	if isTooFewServers(err) && !isTooLittleSpace(err) {
		err = fmt.Errorf("nats.replicas: the NATS cluster has fewer than %d servers: %w", replicas, err)
	}
	if err != nil {
		return fmt.Errorf("provision %s: %w", what, err)
	}
	return nil
}

// provisionBucket creates or updates a bucket. It does not lower the number of replicas.
func (c *Client) provisionBucket(ctx context.Context, conf jetstream.KeyValueConfig) error {
	current, err := c.currentReplicas(ctx, "KV_"+conf.Bucket)
	if err == nil {
		conf.Replicas = max(conf.Replicas, current)
		_, err = c.js.CreateOrUpdateKeyValue(ctx, conf)
		err = c.keep(ctx, "KV_"+conf.Bucket, err)
	}
	return provisionError("bucket "+conf.Bucket, conf.Replicas, err)
}

func (c *Client) provisionCursors(ctx context.Context, replicas int) error {
	return c.provisionBucket(ctx, jetstream.KeyValueConfig{
		Bucket: bucketCursors, Description: "how far work on streams has come", Storage: jetstream.FileStorage,
		History: 1, Replicas: replicas,
	})
}

// LOGS, HISTORY and SUBMITTED are synced asynchronously while they have one replica. With more replicas the server does
// not support that mode, and it cannot change the mode of an existing stream. So provisionUnsynced copies the stream,
// and creates it again from the copy. The copies are mirrors, which keep the sequences.

const (
	copySuffix = "_COPY"
	copyPoll   = 20 * time.Millisecond
	copyStale  = 30 * time.Second // the lock of a killed process is removed after this time
)

// provisionUnsynced creates or updates a stream that is not synced while it has one replica.
func (c *Client) provisionUnsynced(ctx context.Context, conf jetstream.StreamConfig) error {
	next, remake, err := c.unsyncedConfig(ctx, conf)
	if err != nil {
		return err
	}
	if remake {
		lock, err := c.lockCopy(ctx, conf.Name)
		if err != nil {
			return err
		}
		defer lock.release(ctx)
		if next, _, err = c.unsyncedConfig(ctx, conf); err != nil { // another process may have raised the replicas
			return err
		}
		if err := c.remake(ctx, next, lock); err != nil {
			return err
		}
	}
	return c.createOrUpdate(ctx, next)
}

// unsyncedConfig returns conf with the replicas and the persist mode that the stream is to have, and whether the stream
// must be remade for that, or is being remade.
func (c *Client) unsyncedConfig(
	ctx context.Context, conf jetstream.StreamConfig,
) (_ jetstream.StreamConfig, remake bool, err error) {
	original, err := c.streamInfo(ctx, conf.Name)
	if err != nil {
		return conf, false, err
	}
	copied, err := c.streamInfo(ctx, conf.Name+copySuffix)
	if err != nil {
		return conf, false, err
	}
	for _, s := range []*jetstream.StreamInfo{original, copied} {
		if s != nil {
			conf.Replicas = max(conf.Replicas, s.Config.Replicas)
		}
	}
	switch {
	case conf.Replicas > 1:
		conf.PersistMode = jetstream.DefaultPersistMode
	case original != nil && original.Config.Mirror == nil:
		conf.PersistMode = original.Config.PersistMode
	}
	return conf, copied != nil || original != nil && original.Config.PersistMode != conf.PersistMode, nil
}

// streamInfo returns a stream's configuration and state, or nil if it does not exist.
func (c *Client) streamInfo(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	s, err := c.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return s.CachedInfo(), nil
}

// copyLock is held by the process that copies a stream.
type copyLock struct {
	kv      jetstream.KeyValue
	key     string
	rev     uint64
	renewed time.Time
}

// lockCopy waits until no other process copies the stream, and returns the lock. It removes a lock that was not renewed
// for copyStale.
func (c *Client) lockCopy(ctx context.Context, name string) (*copyLock, error) {
	kv, err := c.js.KeyValue(ctx, bucketCursors)
	if err != nil {
		return nil, err
	}
	key := "copy-" + name
	var seen uint64
	since := time.Now()
	for {
		rev, err := swapKey(ctx, kv, key, nil, 0)
		if err == nil {
			return &copyLock{kv: kv, key: key, rev: rev, renewed: time.Now()}, nil
		}
		if !errors.Is(err, errStale) {
			return nil, err
		}
		if e, err := kv.Get(ctx, key); err == nil && e.Revision() != seen {
			seen, since = e.Revision(), time.Now()
		}
		if time.Since(since) > copyStale {
			_ = kv.Delete(ctx, key, jetstream.LastRevision(seen)) // if it fails, another process has the lock
			since = time.Now()
		}
		if err := clock.Sleep(ctx, copyPoll); err != nil {
			return nil, err
		}
	}
}

// renew tells other processes that the lock's holder is alive. It returns an error if another process has the lock.
func (l *copyLock) renew(ctx context.Context) error {
	if time.Since(l.renewed) < copyStale/3 {
		return nil
	}
	rev, err := swapKey(ctx, l.kv, l.key, nil, l.rev)
	if err != nil {
		return fmt.Errorf("renew lock %s: %w", l.key, err)
	}
	l.rev, l.renewed = rev, time.Now()
	return nil
}

func (l *copyLock) release(ctx context.Context) {
	// If this fails, the lock becomes stale.
	_ = l.kv.Delete(context.WithoutCancel(ctx), l.key, jetstream.LastRevision(l.rev))
}

// remake creates a stream again with another persist mode. After a crash, the next call continues with the first step
// that was not done.
func (c *Client) remake(ctx context.Context, conf jetstream.StreamConfig, lock *copyLock) error {
	for {
		if err := lock.renew(ctx); err != nil {
			return err
		}
		original, err := c.streamInfo(ctx, conf.Name)
		if err != nil {
			return err
		}
		copied, err := c.streamInfo(ctx, conf.Name+copySuffix)
		if err != nil {
			return err
		}
		done, err := c.remakeStep(ctx, conf, original, copied)
		if done || err != nil {
			return err
		}
		if err := clock.Sleep(ctx, copyPoll); err != nil {
			return err
		}
	}
}

// remakeStep does the next step. original is the stream and copied the copy, or nil if they do not exist. At any time
// at most one of them takes messages: first the stream, then the copy, and at the end the stream again. A stream is
// closed, and all its messages are copied, before the other one opens:
//
//  1. Mirror the stream in the copy, and close the stream.
//  2. Make the copy an ordinary stream, which takes messages, and delete the stream.
//  3. Create the stream as a mirror of the copy, and close the copy.
//  4. Make the stream an ordinary one, which takes messages, and delete the copy.
func (c *Client) remakeStep(
	ctx context.Context, conf jetstream.StreamConfig, original, copied *jetstream.StreamInfo,
) (done bool, err error) {
	switch {
	case original == nil && copied == nil:
		return true, nil
	case original == nil && copied.Config.Mirror != nil: // an earlier version deleted the stream first
		_, err = c.js.UpdateStream(ctx, ordinary(copied.Config, conf.Subjects))
	case original == nil: // the copy is an ordinary stream: the server refuses two streams that mirror each other
		_, err = c.js.CreateStream(ctx, mirrorOf(copied.Config.Name, conf))
	case original.Config.Mirror != nil && copied == nil:
		_, err = c.js.UpdateStream(ctx, conf)
	case original.Config.Mirror != nil && original.Config.PersistMode != conf.PersistMode: // the settings have changed
		err = c.js.DeleteStream(ctx, conf.Name)
	case original.Config.Mirror != nil && !isClosed(copied):
		err = c.closeBehind(ctx, original, copied)
	case original.Config.Mirror != nil:
		err = c.openAfter(ctx, original, copied, conf)
	case copied != nil && copied.Config.Mirror == nil && !isClosed(copied): // it has all messages
		err = c.js.DeleteStream(ctx, conf.Name)
	case copied != nil && copied.Config.Mirror == nil: // the stream has all messages
		err = c.js.DeleteStream(ctx, copied.Config.Name)
	case original.Config.PersistMode == conf.PersistMode:
		if copied != nil { // the settings have changed
			err = c.js.DeleteStream(ctx, copied.Config.Name)
		}
		return true, err
	case copied == nil:
		mirror := mirrorOf(conf.Name, conf)
		mirror.Name += copySuffix
		_, err = c.js.CreateStream(ctx, mirror)
	case !isClosed(original):
		err = c.closeBehind(ctx, copied, original)
	default:
		err = c.openAfter(ctx, copied, original, ordinary(copied.Config, conf.Subjects))
	}
	return false, err
}

// copyLag is how many messages a mirror may lack when its origin is closed: a busy stream always has a few more.
const copyLag = 1000

// closeBehind closes a stream once a mirror has nearly all of its messages: from then on it takes no message but those
// on its name.
func (c *Client) closeBehind(ctx context.Context, mirror, origin *jetstream.StreamInfo) error {
	if !hasCopied(mirror, origin, copyLag) {
		return nil
	}
	closed := origin.Config
	closed.Subjects = []string{closed.Name}
	_, err := c.js.UpdateStream(ctx, closed)
	return err
}

// openAfter gives a mirror the configuration conf, of an ordinary stream, once it has all messages of its origin, which
// is closed. The origin may still be storing what arrived before that, so openAfter waits and looks at it again.
func (c *Client) openAfter(
	ctx context.Context, mirror, origin *jetstream.StreamInfo, conf jetstream.StreamConfig,
) error {
	if !hasCopied(mirror, origin, 0) {
		return nil
	}
	if err := clock.Sleep(ctx, copyPoll); err != nil {
		return err
	}
	now, err := c.streamInfo(ctx, origin.Config.Name)
	if err == nil && now != nil && now.State.LastSeq == origin.State.LastSeq {
		_, err = c.js.UpdateStream(ctx, conf)
	}
	return err
}

func isClosed(s *jetstream.StreamInfo) bool {
	return slices.Equal(s.Config.Subjects, []string{s.Config.Name})
}

// ordinary returns the configuration of a mirror as an ordinary stream, which takes messages on subjects.
func ordinary(mirror jetstream.StreamConfig, subjects []string) jetstream.StreamConfig {
	mirror.Mirror, mirror.Subjects = nil, subjects
	return mirror
}

// mirrorOf returns the configuration of a mirror of the stream origin, with the limits of conf.
func mirrorOf(origin string, conf jetstream.StreamConfig) jetstream.StreamConfig {
	conf.Subjects = nil
	conf.Mirror = &jetstream.StreamSource{Name: origin}
	return conf
}

// hasCopied reports whether a mirror has all messages of its origin but lag.
func hasCopied(mirror, origin *jetstream.StreamInfo, lag uint64) bool {
	return origin.State.Msgs == 0 || mirror.State.LastSeq+lag >= origin.State.LastSeq
}
