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
	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/statedoc"
	"github.com/codefleet/codefleet/internal/strictjson"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// submission is a checked task event. Submit and the worker check events with the same code, because other
// programs may publish events directly to TASKS.
type submission struct {
	lane
	id        string
	workspace string
	session   string
	replyTo   string
	partition string // the event's partitionkey
	expires   time.Time
	task      schemas.Task
	event     event.Event
	data      []byte      // the event's data, or what its dataref refers to
	header    nats.Header // of the event, if newSubmission has encoded it
}

const (
	// MaxData is the largest task data that Submit accepts, in bytes.
	MaxData = 32 << 20

	defaultPool      = "default"
	defaultPriority  = "normal"
	defaultWorkspace = "main"
	maxKey           = 1024 // bytes of an idempotency key or a partition key
	maxSummary       = 200  // bytes of a description in a list of tasks
)

// Check returns the *RefusedError with which Submit would refuse ev, or nil. It submits nothing. Any other error means
// that ev could not be checked.
func (c *Client) Check(ctx context.Context, tenant string, ev event.Event) error {
	_, err := c.newSubmission(ctx, tenant, ev)
	return err
}

// newSubmission checks an event that is submitted through this client.
func (c *Client) newSubmission(ctx context.Context, tenant string, ev event.Event) (submission, error) {
	header, _, err := encodeReadable(ev)
	if err != nil {
		return submission{}, refuse(errcode.BadEvent, "", "%s", err)
	}
	if c.opts.Producer {
		if err := CheckOutside(ev); err != nil {
			return submission{}, err
		}
	}
	s := submission{lane: lane{tenant: tenant}, event: ev, data: ev.Data(), header: header}
	if len(s.data) > MaxData {
		return submission{}, refuse(errcode.TooLarge, "",
			"the data is %d bytes; the limit is %d", len(s.data), MaxData)
	}
	if _, ok := ev.Extensions()["dataref"]; ok {
		return submission{}, refuse(errcode.BadEvent, "dataref",
			"only the fleet sets dataref: send the data itself")
	}
	policy, err := c.withCreated(ctx, c.opts.Policy, tenant)
	if err != nil {
		return submission{}, err
	}
	err = cmp.Or(s.check(c.opts.AnyInbox, policy), c.checkKept(&s)) // check changes s
	return s, err
}

// isLarge reports whether the data does not fit into the task's message.
func (s *submission) isLarge() bool { return len(s.data) > inlineMax }

// checkKept returns a *RefusedError if the object store would not keep the task's data until its not_before.
func (c *Client) checkKept(s *submission) error {
	kept := c.opts.Storage.Retention
	if !s.isLarge() || c.opts.Producer || s.task.NotBefore == nil || time.Until(*s.task.NotBefore) <= kept {
		return nil
	}
	r := refuse(errcode.BadData, "/not_before", "data above %d KiB is kept for %s only", inlineMax>>10, kept)
	r.Hint = "submit the task later, or pass the data in a workspace"
	return r
}

// check checks s.event and s.data, derives the other fields, and returns the first error, a *RefusedError. A
// wrong value is replaced by its default, so that a refused event has a record and a reply too. If pool and
// priority are set, from the message's subject, the event's must be the same.
func (s *submission) check(anyInbox bool, policy Policy) error {
	s.id = s.taskID()
	return cmp.Or(s.checkAttributes(), s.checkReplyTo(anyInbox), s.decode(), s.checkPolicy(policy)) // calls all four
}

func (s *submission) taskID() string {
	return TaskID(s.tenant, s.event.Source(), cmp.Or(extension(s.event, "idempotencykey"), s.event.ID()))
}

func (s *submission) checkAttributes() error {
	badName := s.checkNames()
	partition, badPartition := partitionKey(s.event)
	s.partition = partition
	priority := extension(s.event, "priority")
	isPriority := slices.Contains(priorities, priority)
	inQueue := s.priority
	if s.priority == "" && isPriority {
		s.priority = priority
	}
	s.priority = cmp.Or(s.priority, defaultPriority)
	expires, badTime := types.ParseTime(cmp.Or(extension(s.event, "expirytime"), "0001-01-01T00:00:00Z"))
	if badTime == nil && !isStorable(expires) {
		badTime = errors.New(notStorable)
	}
	if badTime == nil {
		s.expires = expires.UTC()
	}
	switch t := extension(s.event, "tenant"); {
	case s.event.Type() != schemas.TypeTask:
		return refuse(errcode.BadEvent, "type", "event type %q is not a task: want %s",
			text.Truncate(s.event.Type(), maxText), schemas.TypeTask)
	case t != "" && t != s.tenant:
		return refuse(errcode.TenantMismatch, "tenant", "the event names a tenant other than the sender's")
	case len(extension(s.event, "idempotencykey")) > maxKey:
		return refuse(errcode.BadEvent, "idempotencykey", "longer than %d bytes", maxKey)
	case badPartition != nil:
		return badPartition
	case badName != nil:
		return badName
	case priority != "" && !isPriority:
		return refuse(errcode.BadEvent, "priority", "%q is not one of high, normal, low",
			text.Truncate(priority, maxText))
	case priority != "" && inQueue != "" && priority != inQueue:
		return refuse(errcode.BadEvent, "priority", "the event has priority %s, its subject %s", priority, inQueue)
	case badTime != nil:
		return refuse(errcode.BadEvent, "expirytime", "not an RFC 3339 time, or %s", notStorable)
	}
	return nil
}

func (s *submission) checkNames() error {
	if err := schemas.CheckName("tenant", s.tenant); err != nil {
		return refuse(errcode.BadName, "tenant", "%s", err)
	}
	s.workspace = defaultWorkspace
	for what, to := range map[string]*string{"workspace": &s.workspace, "session": &s.session} {
		value := extension(s.event, what)
		if value == "" {
			continue
		}
		if err := schemas.CheckName(what, value); err != nil {
			return refuse(errcode.BadName, what, "%s", err)
		}
		*to = value
	}
	return nil
}

func (s *submission) checkReplyTo(anyInbox bool) error {
	to := extension(s.event, "replyto")
	if to == "" || replyAllowed(s.tenant, to, anyInbox) {
		s.replyTo = to
		return nil
	}
	r := refuse(errcode.BadReplyTo, "replyto", "the result cannot be sent to this subject")
	r.Hint = fmt.Sprintf("use a subject below notify.%s.reply or _INBOX.%s", s.tenant, s.tenant)
	return r
}

// replyAllowed reports whether results may be sent to a subject that a tenant chose.
func replyAllowed(tenant, subject string, anyInbox bool) bool {
	if len(subject) > 512 || strings.ContainsAny(subject, " \t\r\n*>") || strings.Contains("."+subject+".", "..") {
		return false
	}
	return strings.HasPrefix(subject, "notify."+tenant+".reply.") ||
		strings.HasPrefix(subject, "_INBOX."+tenant+".") ||
		anyInbox && strings.HasPrefix(subject, "_INBOX.")
}

func (s *submission) decode() error {
	if ct := s.event.DataContentType(); ct != "" {
		media, _, err := mime.ParseMediaType(ct)
		if err != nil || media != "application/json" && !strings.HasSuffix(media, "+json") {
			return refuse(errcode.BadData, "datacontenttype", "data of type %q: a task is application/json",
				text.Truncate(ct, maxText))
		}
	}
	if len(s.data) == 0 {
		return refuse(errcode.BadData, "", "the event has no data")
	}
	err := schemas.Decode(schemas.TaskV1, s.data, &s.task)
	unstorable := s.task.NotBefore != nil && !isStorable(*s.task.NotBefore)
	if unstorable { // a refused task has a record, too, and that could not be encoded with this time
		s.task.NotBefore = nil
	}
	if invalid, ok := errors.AsType[*schemas.InvalidError](err); ok {
		return &RefusedError{Code: errcode.BadData, Path: cmp.Or(invalid.At[0].Path, "/"), Message: invalid.Error()}
	}
	if err == nil {
		err = strictjson.Check(s.data)
	}
	if err != nil {
		return refuse(errcode.BadData, "", "%s", err)
	}
	if unstorable {
		return refuse(errcode.BadData, "/not_before", "%s", notStorable)
	}
	if s.pool != "" && s.task.Pool != "" && s.pool != s.task.Pool {
		return refuse(errcode.BadData, "/pool", "the task names pool %s, its subject %s", s.task.Pool, s.pool)
	}
	for i, pattern := range s.task.Artifacts {
		if _, err := path.Match(pattern, ""); err != nil {
			return refuse(errcode.BadData, fmt.Sprint("/artifacts/", i),
				"pattern %q: unclosed bracket or trailing backslash", pattern)
		}
	}
	if err := cmp.Or(checkFiles(s.task.Files), checkEnv(s.task.Env), checkTools(s.task.Tools)); err != nil {
		return err
	}
	if st := s.task.State; st != nil && st.File != "" {
		if err := statedoc.CheckName(st.File); err != nil {
			return refuse(errcode.BadStateFile, "/state/file", "%s", err)
		}
	}
	s.pool = cmp.Or(s.pool, s.task.Pool, defaultPool)
	return nil
}

// checkFiles refuses files of which only the last would be kept.
func checkFiles(files []schemas.File) error {
	seen := make(map[string]bool, len(files))
	for i, f := range files {
		if seen[f.Name] {
			return refuse(errcode.BadData, fmt.Sprintf("/files/%d/name", i), "two files have the name %q",
				text.Truncate(f.Name, maxText))
		}
		seen[f.Name] = true
	}
	return nil
}

// checkTools refuses patterns that no tool can match.
func checkTools(choice *schemas.ToolChoice) error {
	if choice == nil {
		return nil
	}
	for i, pattern := range choice.Allow {
		if !names.IsToolFilter(pattern) {
			r := refuse(errcode.BadData, fmt.Sprint("/tools/allow/", i), "%q is not a pattern of tools",
				text.Truncate(pattern, maxText))
			r.Hint = "want SERVER/TOOL, SERVER/* for all tools of a server, or * for all tools"
			return r
		}
	}
	return nil
}

func (s *submission) checkPolicy(policy Policy) error {
	if policy == nil {
		return TenantPolicy{AnyHost: true}.checkNetwork(s.tenant, s.task.Network)
	}
	p, ok := policy(s.tenant)
	if !ok {
		return refuse(errcode.UnknownTenant, "tenant", "tenant %s is not known to this fleet", s.tenant)
	}
	return p.check(s.lane, &s.task)
}

// record returns the record of the task before its first run.
func (s *submission) record(ctx context.Context, queueSeq uint64, now time.Time) storedRecord {
	var notBefore time.Time
	if s.task.NotBefore != nil {
		notBefore = s.task.NotBefore.UTC()
	}
	return storedRecord{
		DataHash: hashOf(s.data), PartitionKey: s.partition,
		Record: schemas.Record{
			TaskID: s.id, Tenant: s.tenant, Workspace: s.workspace, Session: s.session,
			Pool: s.pool, Priority: s.priority, Status: schemas.Queued, QueueSeq: queueSeq,
			ExpiresAt: s.expires, SubmittedAt: now.UTC(), NotBefore: notBefore,
			Description: text.Truncate(s.task.Summary(), maxSummary),
			Source:      s.event.Source(), EventID: s.event.ID(), TraceID: traceID(ctx),
		},
	}
}

// hashOf returns the DataHash of a record.
func hashOf(data []byte) string {
	hash := sha256.Sum256(data)
	return hex.EncodeToString(hash[:])
}
