package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/semver"

	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/text"
)

// MinServer is the oldest NATS server that Connect accepts.
const MinServer = "2.12.3"

// Client is a connection to the queue. It is safe for concurrent use.
type Client struct {
	opts Options
	nc   *nats.Conn
	js   jetstream.JetStream
	tel  *telemetry

	indexing sync.Mutex
	index    *statusIndex // nil until it is used

	sizes        objectSizes              // bytes that each tenant has in the object store
	controls     atomic.Pointer[controls] // nil until FollowControls has read them
	tokens       tokenCopy                // follows the bucket once FollowTokens is called
	warnReplicas sync.Once                // logs once that tasks have too few replicas

	maxOrdered int // limit of a tenant's waiting events with partition keys; tests lower it

	misses    atomic.Int32 // submissions in a row that no worker claimed at once
	inCluster atomic.Bool  // set and read by clustered

	at atomic.Pointer[Location] // where the server is; see Options.Relocate
}

const (
	requestTimeout   = 10 * time.Second // enough for a cluster to elect a leader
	tryTimeout       = 2 * time.Second  // time limit of one try of a request
	reconnectWait    = 100 * time.Millisecond
	reconnectWaitMax = 2 * time.Second

	// syncQueue is how many messages a synchronous subscription holds. nats.go allocates the whole queue, by default
	// 512 KiB, and each waiting caller has a subscription.
	syncQueue = 2 * readBatch
)

// Connect connects to the server. It returns ErrServerTooOld for a server older than MinServer. It does not
// create streams: see Provision. The client reconnects by itself until Close.
func Connect(ctx context.Context, opts Options) (*Client, error) {
	opts = opts.withDefaults()
	c := &Client{opts: opts, maxOrdered: maxDeliveries}
	c.at.Store(&Location{opts.Server.URL, opts.Credentials.User, opts.Credentials.Password})
	var err error
	if c.tel, err = newTelemetry(opts.Tracer, opts.Meter); err != nil {
		return nil, err
	}
	if c.nc, err = c.dial(ctx); err != nil {
		return nil, fmt.Errorf("connect to NATS %s: %w", text.HideCredentials(c.at.Load().URL), err)
	}
	if v := c.nc.ConnectedServerVersion(); semver.Compare("v"+v, "v"+MinServer) < 0 && !opts.Server.AnyVersion {
		c.nc.Close()
		return nil, fmt.Errorf("%w: %s runs %s; the minimum is %s", ErrServerTooOld,
			text.HideCredentials(c.at.Load().URL), v, MinServer)
	}
	if c.js, err = jetstream.New(c.nc, jetstream.WithDefaultTimeout(requestTimeout)); err != nil {
		c.nc.Close()
		return nil, err
	}
	c.clustered()
	return c, nil
}

// RefusesCredentials reports whether err, of Connect, says that the server refuses the credentials.
func RefusesCredentials(err error) bool {
	return slices.ContainsFunc(
		[]error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired},
		func(refusal error) bool { return errors.Is(err, refusal) })
}

// dial connects to the server. With Server.Wait, it retries until ctx ends, unless the server refuses the credentials
// (nats.ErrAuthorization).
func (c *Client) dial(ctx context.Context) (*nats.Conn, error) {
	var conn atomic.Pointer[nats.Conn]
	options := c.natsOptions(&conn)
	for waited := false; ; {
		nc, err := nats.Connect(c.at.Load().URL, options...)
		if err == nil {
			conn.Store(nc)
		}
		if err == nil && waited {
			c.opts.Log.InfoContext(ctx, "connected to NATS after waiting",
				"url", text.HideCredentials(nc.ConnectedUrl()))
		}
		if err == nil {
			return nc, nil
		}
		if c.relocate() {
			continue
		}
		if !c.opts.Server.Wait || errors.Is(err, nats.ErrAuthorization) {
			return nil, err
		}
		if !waited {
			c.opts.Log.WarnContext(ctx, "waiting for NATS",
				"url", text.HideCredentials(c.at.Load().URL), "error", err)
			waited = true
		}
		if ended := clock.Sleep(ctx, time.Second); ended != nil {
			return nil, errors.Join(err, ended)
		}
	}
}

// relocate finds out where the server is now, and reports whether it has moved.
func (c *Client) relocate() (moved bool) {
	if c.opts.Relocate == nil {
		return false
	}
	now, ok := c.opts.Relocate()
	if !ok || now == *c.at.Load() {
		return false
	}
	c.at.Store(&now)
	c.opts.Log.InfoContext(context.Background(), "NATS has a new address or password",
		"url", text.HideCredentials(now.URL))
	return true
}

// reconnectDelay returns how long to wait before an attempt to reconnect. nats.go calls it before each attempt. If the
// server has moved, reconnectDelay tells nats.go the new address.
func (c *Client) reconnectDelay(conn *atomic.Pointer[nats.Conn], attempts int) time.Duration {
	if nc := conn.Load(); nc != nil && c.relocate() {
		if err := nc.SetServerPool(strings.Split(c.at.Load().URL, ",")); err != nil {
			c.opts.Log.WarnContext(context.Background(), "address of NATS not changed", "error", err)
		}
	}
	return min(reconnectWait<<min(attempts, 10), reconnectWaitMax)
}

// natsOptions returns the options of a connection, which is stored in conn once it is made.
func (c *Client) natsOptions(conn *atomic.Pointer[nats.Conn]) []nats.Option {
	o, auth, log := c.opts, c.opts.Credentials, c.opts.Log
	inboxes := "_INBOX"
	if auth.User != "" {
		inboxes += "." + auth.User
	}
	options := []nats.Option{
		nats.Name(o.Name),
		nats.CustomInboxPrefix(inboxes),
		nats.PermissionErrOnSubscribe(true),
		nats.SyncQueueLen(syncQueue),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // the server may get its users later
		nats.CustomReconnectDelay(func(n int) time.Duration { return c.reconnectDelay(conn, n) }),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if !nc.IsClosed() && err != nil {
				log.WarnContext(context.Background(), "NATS connection lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.InfoContext(context.Background(), "NATS connection restored",
				"url", text.HideCredentials(nc.ConnectedUrl()))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.WarnContext(context.Background(), "NATS reported an error", "error", err)
		}),
	}
	if o.Server.InProcess != nil {
		options = append(options, nats.InProcessServer(o.Server.InProcess))
	}
	switch {
	case auth.CredsFile != "":
		options = append(options, nats.UserCredentials(auth.CredsFile))
	case auth.NKeyFile != "":
		options = append(options, nkeyOption(auth.NKeyFile))
	case auth.Token != "":
		options = append(options, nats.Token(auth.Token))
	case auth.User != "":
		options = append(options, nats.UserInfoHandler(func() (user, password string) {
			at := c.at.Load()
			return at.User, at.Password
		}))
	}
	if o.Server.TLS != nil {
		options = append(options, nats.Secure(o.Server.TLS))
	}
	return options
}

// nkeyOption returns an option with the nkey seed in a file. If the seed cannot be read, connecting fails.
func nkeyOption(file string) nats.Option {
	option, err := nats.NkeyOptionFromSeed(file)
	if err != nil {
		return func(*nats.Options) error { return err }
	}
	return option
}

// Close flushes published messages and closes the connection.
func (c *Client) Close() {
	c.dropIndex(nil)
	if err := c.nc.FlushTimeout(time.Second); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		c.opts.Log.WarnContext(context.Background(), "flush of the NATS connection failed", "error", err)
	}
	c.nc.Close()
}

// request sends a request to the server and waits for the response, at most requestTimeout. It repeats the request
// after tryTimeout, because a server that was lost may have received it. So the request must be idempotent.
func (c *Client) request(ctx context.Context, subject string, data []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for {
		try, done := context.WithTimeout(ctx, tryTimeout)
		msg, err := c.nc.RequestWithContext(try, subject, data)
		done()
		if err == nil || try.Err() == nil || ctx.Err() != nil {
			return msg, err
		}
	}
}

// unsubscribe ends a subscription. Unsubscribe fails only on a closed connection, which has no subscriptions.
func unsubscribe(sub *nats.Subscription) { _ = sub.Unsubscribe() }
