package jobs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// order is a task event that has passed every check: what Submit queues and a worker runs. Both make
// theirs with the same code, since events also reach workers straight from foreign producers.
type order struct {
	lane
	id        string
	workspace string
	session   string
	replyTo   string
	expires   time.Time
	task      schemas.Task
	ev        event.Event
	data      []byte // of the event, fetched if it was elsewhere
}

const (
	defaultPool      = "default"
	defaultPriority  = "normal"
	defaultWorkspace = "main"
	maxKey           = 1024 // bytes of an idempotency key
)

var priorities = []string{"high", "normal", "low"} // in the order of their claim to a slot

func refuse(code, path, format string, args ...any) *RefusedError {
	return &RefusedError{Code: code, Path: path, Message: fmt.Sprintf(format, args...)}
}

// Check says whether Submit would refuse ev, without a word to the server: nil or *RefusedError.
func (c *Client) Check(tenant string, ev event.Event) error {
	_, err := c.order(tenant, ev, c.opts.Policy)
	return err
}

// order checks an event that comes by Submit.
func (c *Client) order(tenant string, ev event.Event, policy Policy) (order, error) {
	if err := checkEvent(ev); err != nil {
		return order{}, refuse(errcode.BadEvent, "", "%s", err)
	}
	o := order{lane: lane{tenant: tenant}, ev: ev, data: ev.Data()}
	if len(o.data) > MaxData {
		return order{}, refuse(errcode.TooLarge, "", "data of %d bytes, at most %d are taken", len(o.data), MaxData)
	}
	if _, ok := ev.Extensions()["dataref"]; ok {
		return order{}, refuse(errcode.BadEvent, "dataref", "give the data themselves: the fleet moves large ones to its store by itself")
	}
	return o, o.fill(c.opts.AnyInbox, policy)
}

// fill checks o.ev and o.data and derives the rest; what is wrong gets its default, so that a refused
// event has a record and an answer too. A lane that comes with pool and priority (those of the
// subject) must agree with the event's. The error is the first one.
func (o *order) fill(anyInbox bool, policy Policy) error {
	o.id = eventTaskID(o.tenant, o.ev)
	return cmp.Or(o.attributes(), o.reply(anyInbox), o.decode(), o.allowed(policy))
}

// eventTaskID is the id of the task that ev asks for, whether or not it is a good one.
func eventTaskID(tenant string, ev event.Event) string {
	return TaskID(tenant, ev.Source(), cmp.Or(extension(ev, "idempotencykey"), ev.ID()))
}

// extension returns an extension attribute as text, "" when it is absent.
func extension(ev event.Event, name string) string {
	v, ok := ev.Extensions()[name]
	if !ok {
		return ""
	}
	s, err := types.Format(v)
	if err != nil {
		return ""
	}
	return s
}

func (o *order) attributes() error {
	names := o.names()
	priority := extension(o.ev, "priority")
	known := slices.Contains(priorities, priority)
	inQueue := o.priority
	if o.priority == "" {
		o.priority = defaultPriority
		if known {
			o.priority = priority
		}
	}
	expires, badTime := types.ParseTime(cmp.Or(extension(o.ev, "expirytime"), "0001-01-01T00:00:00Z"))
	if badTime == nil {
		o.expires = expires.UTC()
	}
	switch t := extension(o.ev, "tenant"); {
	case o.ev.Type() != schemas.TypeTask:
		return refuse(errcode.BadEvent, "type", "an event of type %q is no task: want %s", head(o.ev.Type()), schemas.TypeTask)
	case t != "" && t != o.tenant:
		return refuse(errcode.TenantMismatch, "tenant", "the event is of another tenant than its sender")
	case len(extension(o.ev, "idempotencykey")) > maxKey:
		return refuse(errcode.BadEvent, "idempotencykey", "longer than %d bytes", maxKey)
	case names != nil:
		return names
	case priority != "" && !known:
		return refuse(errcode.BadEvent, "priority", "%q is not one of high, normal, low", head(priority))
	case priority != "" && inQueue != "" && priority != inQueue:
		return refuse(errcode.BadEvent, "priority", "the event says %s, its subject %s", priority, inQueue)
	case badTime != nil:
		return refuse(errcode.BadEvent, "expirytime", "not a time as in RFC 3339")
	}
	return nil
}

func (o *order) names() error {
	if err := schemas.CheckName("tenant", o.tenant); err != nil {
		return refuse(errcode.BadName, "tenant", "%s", err)
	}
	o.workspace = defaultWorkspace
	for what, to := range map[string]*string{"workspace": &o.workspace, "session": &o.session} {
		s := extension(o.ev, what)
		if s == "" {
			continue
		}
		if err := schemas.CheckName(what, s); err != nil {
			return refuse(errcode.BadName, what, "%s", err)
		}
		*to = s
	}
	return nil
}

func (o *order) reply(anyInbox bool) error {
	to := extension(o.ev, "replyto")
	if to == "" || replyAllowed(o.tenant, to, anyInbox) {
		o.replyTo = to
		return nil
	}
	r := refuse(errcode.BadReplyTo, "replyto", "the result cannot be sent to this subject")
	r.Hint = fmt.Sprintf("use a subject below notify.%s.reply or _INBOX.%s", o.tenant, o.tenant)
	return r
}

// replyAllowed reports whether a tenant may have its results sent to a subject.
func replyAllowed(tenant, subject string, anyInbox bool) bool {
	if len(subject) > 512 || strings.ContainsAny(subject, " \t\r\n*>") || strings.Contains("."+subject+".", "..") {
		return false
	}
	return strings.HasPrefix(subject, "notify."+tenant+".reply.") ||
		strings.HasPrefix(subject, "_INBOX."+tenant+".") ||
		anyInbox && strings.HasPrefix(subject, "_INBOX.")
}

func (o *order) decode() error {
	if ct := o.ev.DataContentType(); ct != "" {
		media, _, err := mime.ParseMediaType(ct)
		if err != nil || media != "application/json" && !strings.HasSuffix(media, "+json") {
			return refuse(errcode.BadData, "datacontenttype", "data of type %q: a task is application/json", head(ct))
		}
	}
	if len(o.data) == 0 {
		return refuse(errcode.BadData, "", "the event has no data")
	}
	err := schemas.Decode(schemas.TaskV1, o.data, &o.task)
	if invalid, ok := errors.AsType[*schemas.InvalidError](err); ok {
		return &RefusedError{Code: errcode.BadData, Path: cmp.Or(invalid.At[0].Path, "/"), Message: invalid.Error()}
	}
	if err != nil {
		return refuse(errcode.BadData, "", "%s", err)
	}
	if o.pool != "" && o.task.Pool != "" && o.pool != o.task.Pool {
		return refuse(errcode.BadData, "/pool", "the data say %s, the subject %s", o.task.Pool, o.pool)
	}
	for i, pattern := range o.task.Artifacts {
		if _, err := path.Match(pattern, ""); err != nil {
			return refuse(errcode.BadData, fmt.Sprint("/artifacts/", i), "pattern %q: a bracket or backslash without its end", pattern)
		}
	}
	o.pool = cmp.Or(o.pool, o.task.Pool, defaultPool)
	return nil
}

func (o *order) allowed(policy Policy) error {
	if policy == nil {
		return o.network(TenantPolicy{AnyHost: true})
	}
	p, known := policy(o.tenant)
	if !known {
		return refuse(errcode.UnknownTenant, "tenant", "tenant %s is not known to this fleet", o.tenant)
	}
	if len(p.Pools) > 0 && !slices.Contains(p.Pools, o.pool) {
		return refuse(errcode.NotAllowed, "/pool", "pool %s is not open to tenant %s", o.pool, o.tenant)
	}
	if len(p.Priorities) > 0 && !slices.Contains(p.Priorities, o.priority) {
		return refuse(errcode.NotAllowed, "priority", "priority %s is not open to tenant %s", o.priority, o.tenant)
	}
	l := o.task.Limits
	switch {
	case l == nil:
	case p.MaxTimeout > 0 && l.TimeoutS > p.MaxTimeout.Seconds():
		return refuse(errcode.NotAllowed, "/limits/timeout_s", "more than the tenant's %v", p.MaxTimeout)
	case p.MaxMemory > 0 && l.MemoryMB > p.MaxMemory:
		return refuse(errcode.NotAllowed, "/limits/memory_mb", "more than the tenant's %d MiB", p.MaxMemory)
	case p.MaxCPUs > 0 && l.CPUs > p.MaxCPUs:
		return refuse(errcode.NotAllowed, "/limits/cpus", "more than the tenant's %g", p.MaxCPUs)
	}
	return o.network(p)
}

// record is the record of a task that nobody has begun.
func (o *order) record(ctx context.Context, queueSeq uint64, now time.Time) entry {
	hash := sha256.Sum256(o.data)
	return entry{
		DataHash: hex.EncodeToString(hash[:]),
		Record: schemas.Record{
			TaskID: o.id, Tenant: o.tenant, Workspace: o.workspace, Session: o.session,
			Pool: o.pool, Priority: o.priority, Status: schemas.Queued, QueueSeq: queueSeq,
			ExpiresAt: o.expires, SubmittedAt: now.UTC(), Description: beginning(o.task.Description),
			Source: o.ev.Source(), EventID: o.ev.ID(), TraceID: traceID(ctx),
		},
	}
}

// beginning is what a list of tasks shows of a sentence.
func beginning(description string) string {
	const most = 200 // bytes
	if len(description) <= most {
		return description
	}
	return strings.ToValidUTF8(description[:most], "") + "…"
}
