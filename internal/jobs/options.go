package jobs

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/codefleet/codefleet/internal/allowlist"
)

// Options configure a Client. Server is required.
type Options struct {
	Server      Server
	Credentials Credentials
	Storage     Storage
	Name        string        // of the connection, for the server's logs; default "codefleet"
	AckWait     time.Duration // a worker loses its task after this long without a heartbeat; default 30 s
	AnyInbox    bool          // accept any subject below _INBOX as replyto: authentication is off

	// Producer is for the NATS user of a tenant, which may only publish the tenant's tasks and read its
	// records. Submit then leaves the record to the worker that claims the task and limits the data to one
	// message; Record and Wait take a missing record for a task that is not claimed yet.
	Producer bool

	Policy Policy       // what Submit refuses before it queues; nil: nothing but bad events
	Log    *slog.Logger // default slog.Default()
	Tracer trace.Tracer // nil: none
	Meter  metric.Meter // nil: none
}

// Server says how to reach the NATS server. URL or InProcess is required.
type Server struct {
	URL        string                     // nats://host:port, tls://…, ws://…; several with commas
	InProcess  nats.InProcessConnProvider // an embedded server, instead of URL
	TLS        *tls.Config
	Wait       bool // Connect tries until its context ends instead of once: for a worker that starts first
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

// Storage configures the streams that Provision creates.
type Storage struct {
	Retention  time.Duration // of a terminal record; default DefaultRetention
	MaxBacklog int64         // queued tasks per pool, priority and tenant, then ErrBacklogFull; default 100,000
	Replicas   int           // of each stream; default 1
	Revisions  int64         // of each record that are kept, for audits; default 1
}

// Errors that callers branch on.
var (
	ErrUnknownTask  = errors.New("unknown task")
	ErrBacklogFull  = errors.New("backlog of the tenant is full")       // try again later
	ErrKeyReused    = errors.New("task id is taken by another event")   // Submit: same source and key, different data
	ErrServerTooOld = errors.New("NATS server is older than supported") // see MinServer
)

// Policy says what a tenant may do. The second result is false for a tenant nobody knows.
// It is called often and from several goroutines, and must not block.
type Policy func(tenant string) (TenantPolicy, bool)

// TenantPolicy bounds a tenant. The zero value allows everything but the network.
type TenantPolicy struct {
	Pools      []string // it may use; empty: every pool
	Priorities []string // it may use; empty: all three
	MaxRunning int      // tasks running at once per pool and priority, in the whole fleet; 0: 1,024
	MaxTimeout time.Duration
	MaxMemory  int     // MiB
	MaxCPUs    float64 //

	Network []allowlist.Pattern // that its tasks may ask to reach
	AnyHost bool                // they may ask for every host
}

// RefusedError says why an event cannot become a task. Nothing was queued. Code is stable: bad_event,
// bad_data, bad_name, bad_replyto, tenant_mismatch, too_large, unknown_tenant, not_allowed, expired.
type RefusedError struct {
	Code    string
	Message string
	Path    string // JSON Pointer into the data, or an attribute's name; "" when it is about the whole
	Hint    string
}

func (e *RefusedError) Error() string { return e.Code + ": " + e.text() }

// text is the message with the place it is about, once: many messages begin with it.
func (e *RefusedError) text() string {
	if e.Path == "" || strings.HasPrefix(e.Message, e.Path) {
		return e.Message
	}
	return e.Path + ": " + e.Message
}
