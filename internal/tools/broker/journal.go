package broker

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/tools"
)

// Journal stores a task's calls across its runs. When Intent or Record returns nil, the entry is durable;
// both may be retried. An entry replaces an earlier one with the same key.
type Journal interface {
	// Lookup returns the latest entry for every key of the task, in the order of the calls.
	Lookup(ctx context.Context, tenant, task string) ([]JournalEntry, error)
	// Intent stores r and returns its new version if the latest entry with r.Key has the version r.Version, or if
	// r.Version is 0 and the key has no entry. Otherwise it returns ErrOvertaken.
	Intent(ctx context.Context, r JournalEntry) (version uint64, err error)
	Record(ctx context.Context, r JournalEntry) error
}

// ErrOvertaken is returned by Journal.Intent if another run has written the entry.
var ErrOvertaken = errors.New("another run of the task has recorded this call")

// Key identifies a call: it is the N-th call of the tool with these arguments in a run of the task.
type Key struct {
	Tenant   string `json:"tenant"`
	Task     string `json:"task"`
	Server   string `json:"server"`
	Tool     string `json:"tool"`
	ArgsHash string `json:"args_hash"`
	N        int    `json:"n"` // from 1
}

// name returns a short name for the call that is unique within its task and that people can type.
func (k Key) name() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d", k.Server, k.Tool, k.ArgsHash, k.N))
	return nameEncoding.EncodeToString(sum[:])[:10]
}

var nameEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// JournalEntry holds what the journal knows of one call.
type JournalEntry struct {
	Key   Key       `json:"key"`
	State CallState `json:"state"`
	Run   int       `json:"attempt"`
	// Version is the one that Lookup or Intent returned, and 0 if the key had no entry. It is not stored.
	Version uint64          `json:"-"`
	At      time.Time       `json:"at"`
	Value   json.RawMessage `json:"value,omitempty"` // the result of an Answered call
	Error   *Error          `json:"error,omitempty"` // the tool's error, if an Answered call failed
	// Content is a list of what the tool returned besides its structured content.
	Content json.RawMessage `json:"content,omitempty"`
	// Files are the files that Value, Content and Error refer to. The journal does not limit their size: the limit of a
	// tool's result does.
	Files []File `json:"files,omitempty"`
	// Tokens are the values of the privacy tokens in the entry, encrypted.
	Tokens []byte `json:"tokens,omitempty"`
}

// sealed returns the entry with the encrypted values of its privacy tokens.
func (r JournalEntry) sealed(h Hooks) (JournalEntry, error) {
	if h.Seal == nil {
		return r, nil
	}
	parts := [][]byte{r.Value, r.Content}
	for _, f := range r.Files {
		parts = append(parts, f.Data)
	}
	if r.Error != nil {
		parts = append(parts, []byte(r.Error.Message), r.Error.Structured, r.Error.Content)
	}
	var err error
	r.Tokens, err = h.Seal(parts...)
	return r, err
}

// File is a part of a result that the program gets as a file.
type File struct {
	Name      string `json:"name"`
	MediaType string `json:"media_type"`
	Data      []byte `json:"data"`
}

// CallState is the state of a call in the journal.
type CallState string

// The states of a call in the journal.
const (
	Intended CallState = "intended" // it was about to be made, and may have been
	Answered CallState = "answered"
	NotMade  CallState = "not_made" // it certainly was not made
)

// argsHash returns the hash of the arguments in canonical form.
func argsHash(args json.RawMessage) string {
	canon, err := canonicalJSON(args)
	if err != nil {
		canon = args
	}
	sum := sha256.Sum256(canon)
	return hex.EncodeToString(sum[:])
}

// canonicalJSON returns a JSON value with sorted keys and without spaces. Numbers keep their text.
func canonicalJSON(data []byte) ([]byte, error) {
	if !json.Valid(data) {
		return nil, errors.New("not a JSON value")
	}
	v, err := tools.DecodeJSON(data)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// journalWriter writes to the journal, partly in the background.
type journalWriter struct {
	journal   Journal
	persister *persister
	log       *slog.Logger
	pending   sync.WaitGroup

	mu  sync.Mutex
	err error
}

// write stores an entry on which a call depends. It calls put until put succeeds; see persister.write.
func (r *journalWriter) write(
	ctx context.Context, put func(context.Context, JournalEntry) error, entry JournalEntry,
) error {
	entry.At = time.Now().UTC()
	return r.persister.write(ctx, "write the journal", func(ctx context.Context) error { return put(ctx, entry) })
}

// writeIntent writes an entry with Journal.Intent, and sets its version.
func (r *journalWriter) writeIntent(ctx context.Context, entry *JournalEntry) error {
	return r.write(ctx, func(ctx context.Context, e JournalEntry) (err error) {
		e.Version, err = r.journal.Intent(ctx, e)
		if err == nil {
			entry.Version = e.Version
		}
		return err
	}, *entry)
}

// recordAsync records an entry in the background, in one try.
func (r *journalWriter) recordAsync(ctx context.Context, entry JournalEntry) {
	r.pending.Go(func() {
		ctx, cancel := r.persister.tryContext(ctx)
		defer cancel()
		entry.At = time.Now().UTC()
		if err := r.journal.Record(ctx, entry); err != nil {
			r.mu.Lock()
			r.err = errors.Join(r.err, err)
			r.mu.Unlock()
		}
	})
}

// wait waits until no write of recordAsync is pending, and returns the errors of these writes.
func (r *journalWriter) wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() { // ends within writeTimeout
		r.pending.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
