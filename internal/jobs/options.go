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

// Options say which server a Client talks to, and as whom. URL or InProcess is required.
type Options struct {
	URL       string                     // nats://host:port, tls://…, ws://…; several with commas
	InProcess nats.InProcessConnProvider // an embedded server, instead of URL
	Name      string                     // of the connection, for the server's logs; default "codefleet"

	// One of: user and password, token, a .creds file, an nkey seed file. None: no authentication.
	User, Password string
	Token          string
	CredsFile      string
	NKeyFile       string
	TLS            *tls.Config
	InboxPrefix    string // default "_INBOX.<User>", or "_INBOX" without a user

	// WaitForServer makes Connect try until its context ends instead of once: for a worker that
	// starts before its server.
	WaitForServer bool

	AckWait    time.Duration // a worker silent for this long has lost its task; default 30 s
	Retention  time.Duration // how long a terminal record is kept; default 7 days
	MaxBacklog int64         // queued tasks per pool, priority and tenant, then ErrBacklogFull; default 100,000
	Replicas   int           // of each stream; default 1
	History    int64         // versions of each record to keep, for audits; default 1
	AnyServer  bool          // accept servers older than MinServer
	AnyInbox   bool          // allow any _INBOX.> as replyto: authentication is off

	// Producer is for a tenant's own user, which may publish its tasks and read its records and
	// nothing else. Submit then leaves the record to the worker that takes the task, data are
	// limited to what one message holds, and Record and Wait take a missing record for a task that
	// nobody has taken yet.
	Producer bool

	Policy Policy       // what Submit refuses before it queues; nil: nothing but bad events
	Log    *slog.Logger // default slog.Default()
	Tracer trace.Tracer // nil: none
	Meter  metric.Meter // nil: none
}

// Errors that callers branch on.
var (
	ErrUnknownTask = errors.New("unknown task")
	ErrBacklogFull = errors.New("backlog of the tenant is full")       // try again later
	ErrOtherData   = errors.New("task id is taken by another event")   // Submit: same source and key, different data
	ErrServerOld   = errors.New("NATS server is older than supported") // see MinServer
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
