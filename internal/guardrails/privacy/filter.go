package privacy

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"
)

// Mode says in which texts values are replaced. A higher mode includes the lower ones.
type Mode int

// The modes.
const (
	Off    Mode = iota
	Egress      // what models, MCP clients, logs and approvals get
	Broker      // also what programs get from tools
)

// Settings are those of the fleet, or those with which a tenant tightens the fleet's.
type Settings struct {
	Mode  Mode
	Types []Type
	// Restore lists the tools whose arguments get the values of tokens, as "server/tool", "server/*" or "*". A tenant's
	// list is nil if it does not restrict the fleet's.
	Restore []string
}

// Options configure a Filter.
type Options struct {
	// Key is the fleet's secret. All processes that run or show a tenant's tasks need the same.
	Key     []byte
	Fleet   Settings
	Tenants map[string]Settings
	// TTL is how long a token can be replaced with its value.
	TTL        time.Duration
	Recognizer *Recognizer // may be nil
}

// Filter replaces personal data and secrets for the tenants of a fleet. It is safe for concurrent use.
type Filter struct {
	o        Options
	detector *Detector // finds values of all types
}

// NewFilter returns a Filter.
func NewFilter(o Options) (*Filter, error) {
	d, err := New(Types()...)
	return &Filter{o: o, detector: d}, err
}

// ModeOf returns the mode of a tenant.
func (f *Filter) ModeOf(tenant string) Mode { return max(f.o.Fleet.Mode, f.o.Tenants[tenant].Mode) }

// RestoreOf returns two lists of tools. Only those that both name get values.
func (f *Filter) RestoreOf(tenant string) (fleet, tenants []string) {
	if own := f.o.Tenants[tenant].Restore; own != nil {
		return f.o.Fleet.Restore, own
	}
	return f.o.Fleet.Restore, f.o.Fleet.Restore
}

func (f *Filter) typesOf(tenant string) []Type {
	types := slices.Concat(f.o.Fleet.Types, f.o.Tenants[tenant].Types)
	slices.Sort(types)
	return slices.Compact(types)
}

// Task returns the tokens of a task, or nil if its tenant's mode is Off. With Egress, all tasks of a tenant have the
// same tokens, so that a model recognizes a value that it has seen. With Broker each task has its own.
func (f *Filter) Task(tenant, task string) *Tokens {
	switch f.ModeOf(tenant) {
	case Off:
		return nil
	case Broker:
		return f.tokens(Broker, f.typesOf(tenant), "task", tenant, task)
	case Egress:
	}
	return f.tokens(Egress, f.typesOf(tenant), "tenant", tenant)
}

// Strict returns tokens of all types that the fleet or a tenant replaces, for a text of an unknown tenant.
func (f *Filter) Strict(mode Mode) *Tokens {
	types := f.o.Fleet.Types
	for _, t := range f.o.Tenants {
		types = slices.Concat(types, t.Types)
	}
	return f.tokens(mode, types, "strict")
}

// recognizedAtOnce is how many texts ReplaceStrict passes to the recognizer together: one Timeout applies to all of
// them.
const recognizedAtOnce = 16

// ReplaceStrict replaces values in texts of unknown tenants, as the tokens of Strict do. If the recognizer fails, it
// returns an error.
func (f *Filter) ReplaceStrict(ctx context.Context, mode Mode, texts []string) ([]string, error) {
	t := f.Strict(mode)
	patterns := f.Strict(mode)
	patterns.recognizer = nil
	out := make([]string, 0, len(texts))
	for some := range slices.Chunk(texts, recognizedAtOnce) {
		recognized, err := t.recognize(ctx, some...)
		if err != nil {
			return nil, fmt.Errorf("find names in the texts: %w", err)
		}
		for _, text := range some {
			text = t.replaceSpans(text, t.find(text, recognized[text]))
			out = append(out, patterns.ReplaceText(ctx, text)) // also values that JSON members announce
		}
	}
	return out, nil
}

// Replacer returns a function that replaces values in texts for a tenant's MCP clients, or in texts that are stored for
// its models, such as the text of a session. It is nil if the tenant's mode is Off.
func (f *Filter) Replacer(tenant string) func(context.Context, string) string {
	if f.ModeOf(tenant) == Off {
		return nil
	}
	return f.AlwaysReplacer(tenant)
}

// AlwaysReplacer is like Replacer, but ignores the mode.
func (f *Filter) AlwaysReplacer(tenant string) func(context.Context, string) string {
	return func(ctx context.Context, text string) string {
		// These Tokens are used for one text only: nothing replaces their tokens with values again.
		return f.tokens(Egress, f.typesOf(tenant), "tenant", tenant).ReplaceText(ctx, text)
	}
}

// Log returns a function that replaces values in log lines. It replaces all types that the fleet or a tenant replaces,
// but not addresses of this host, and not names, because it does not ask the recognizer. It is nil if the mode of the
// fleet and of all tenants is Off.
func (f *Filter) Log() func(string) string {
	mode, types := f.o.Fleet.Mode, f.o.Fleet.Types
	for _, t := range f.o.Tenants {
		mode, types = max(mode, t.Mode), slices.Concat(types, t.Types)
	}
	if mode == Off {
		return nil
	}
	return func(line string) string {
		t := f.tokens(Egress, types, "log")
		t.recognizer, t.detector.skipThisHost = nil, true
		return t.Replace(context.Background(), line)
	}
}

// tokens returns the Tokens of a scope.
func (f *Filter) tokens(mode Mode, types []Type, scope ...string) *Tokens {
	t := &Tokens{
		Mode: mode, key: f.derive("tokens", scope), seal: sealer{f.derive("seal", scope)}, ttl: f.o.TTL,
		detector: f.detector.only(types), values: map[string]value{},
	}
	if slices.Contains(types, Person) || slices.Contains(types, Place) {
		t.recognizer = f.o.Recognizer
	}
	return t
}

// derive returns a key for a purpose and scope. It cannot be guessed without the fleet's key.
func (f *Filter) derive(purpose string, scope []string) []byte {
	key, err := hkdf.Key(sha256.New, f.o.Key, nil, fmt.Sprintf("codefleet privacy 1 %s %q", purpose, scope), 32)
	if err != nil {
		panic(err) // only for a length that SHA-256 cannot produce
	}
	return key
}
