package jobs

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Options configure a Client. Server is required.
type Options struct {
	Server      Server
	Credentials Credentials
	// Relocate, if not nil, returns where the server is now. It is called when the connection cannot be made: the
	// server may be back with a new address or password. ok is false if that is not known.
	Relocate func() (at Location, ok bool)
	Storage  Storage
	Name     string        // connection name in the server's logs; default "codefleet"
	AckWait  time.Duration // a worker loses its task after this long without a heartbeat; default 30 s
	AnyInbox bool          // accept any replyto below _INBOX; for servers without authentication

	// Producer is for the NATS user of a tenant, which may only publish the tenant's tasks, read its records, and list
	// and answer its pending approvals. Submit then limits the data to one message, and does not create the record:
	// RecordTasks does, or the worker that claims the task. Wait waits for the record instead of returning
	// ErrUnknownTask.
	Producer bool

	Policy Policy       // what tenants may submit; nil allows every valid event
	Log    *slog.Logger // default slog.Default()
	Tracer trace.Tracer // nil disables tracing
	Meter  metric.Meter // nil disables metrics
}

// Server is how to reach the NATS server. URL or InProcess is required.
type Server struct {
	URL        string                     // nats://host:port, tls://…, ws://…; separate several by commas
	InProcess  nats.InProcessConnProvider // an embedded server, instead of URL
	TLS        *tls.Config
	Wait       bool // Connect retries, for a worker that starts before the server; refused credentials end it at once
	AnyVersion bool // accept servers older than MinServer
}

// Credentials authenticate a Client: a user and password, a token, a .creds file or an nkey seed file. The
// zero value does not authenticate.
type Credentials struct {
	User, Password string
	Token          string
	CredsFile      string
	NKeyFile       string
}

// Location is an address, as in Server.URL, with a user and password.
type Location struct{ URL, User, Password string }

// Storage configures the streams that Provision creates.
type Storage struct {
	Retention  time.Duration // how long a terminal record is kept; default DefaultRetention
	MaxBacklog int64         // unfinished tasks per lane, above which Submit fails with ErrBacklogFull; default 100,000
	// PayloadBytes limits what is stored for a tenant because it is too large for messages. There are two such limits
	// of this size: for the data of unfinished tasks, above which Submit fails with ErrStorageFull (or with a
	// RefusedError, if the data alone exceeds the limit), and for results, journal entries and dead letters, of which
	// the oldest are removed. The default is 4 GiB.
	PayloadBytes int64
	DeadLetters  int64 // how many of each tenant's newest dead letters are kept; default 1,000
	Replicas     int   // replicas of each stream; by default 3 in a cluster of at least three servers, else 1
	Revisions    int64 // how many revisions of each record are kept, for audits; default 1
}

const (
	// DefaultRetention is how long a terminal record is kept unless Storage says otherwise.
	DefaultRetention = 7 * 24 * time.Hour
	defaultAckWait   = 30 * time.Second
	defaultBacklog   = 100_000
	defaultPayloads  = 4 << 30
	defaultDead      = 1000
)

func (o Options) withDefaults() Options {
	o.Name = cmp.Or(o.Name, "codefleet")
	o.AckWait = cmp.Or(o.AckWait, defaultAckWait)
	s := &o.Storage
	s.Retention = cmp.Or(s.Retention, DefaultRetention)
	s.MaxBacklog = cmp.Or(s.MaxBacklog, defaultBacklog)
	s.PayloadBytes = cmp.Or(s.PayloadBytes, defaultPayloads)
	s.DeadLetters = cmp.Or(s.DeadLetters, defaultDead)
	s.Revisions = cmp.Or(s.Revisions, 1)
	o.Log = cmp.Or(o.Log, slog.Default())
	return o
}
