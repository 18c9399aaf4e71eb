package pipeline

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/selection"
)

// Embeddings help to find the tools of a catalogue, beside the local index and never instead of it. A nil Embeddings
// is the local index alone.
type Embeddings struct {
	embedder selection.Embedder
	opts     selection.HybridOptions
	log      *slog.Logger
	wake     chan struct{} // there is something pending

	mu      sync.Mutex
	pending []index  // whose tools have no embeddings yet, the oldest first
	late    []string // queries whose vectors did not come in time, the oldest first
}

// maxPending bounds the catalogues that wait, maxLate the queries: more are forgotten, and found by words.
const (
	maxPending = 8
	maxLate    = 16
)

// NewEmbeddings returns those that e makes. Run has them made.
func NewEmbeddings(e selection.Embedder, o selection.HybridOptions, log *slog.Logger) *Embeddings {
	if o.Cache == nil {
		o.Cache = selection.NewMemoryCache(vectorsInMemory)
	}
	s := &Embeddings{embedder: e, opts: o, log: log, wake: make(chan struct{}, 1)}
	s.opts.Late = s.missed
	return s
}

// vectorsInMemory bounds the cache where none is given.
const vectorsInMemory = 10_000

// missed keeps queries for Run, which asks for their vectors without haste. A server that loads its model when it is
// asked, and stops loading when whoever asks goes away, would never have it loaded otherwise.
func (s *Embeddings) missed(queries []string) {
	s.mu.Lock()
	s.late = append(s.late, queries...)
	s.late = s.late[max(0, len(s.late)-maxLate):]
	s.mu.Unlock()
	s.rouse()
}

// rouse has Run look at what there is to do.
func (s *Embeddings) rouse() {
	select {
	case s.wake <- struct{}{}:
	default: // it is awake
	}
}

// The pause before what could not be embedded is tried again: doubled with each failure in a row.
const (
	embedAgain     = 5 * time.Second
	embedAgainMost = 5 * time.Minute
)

// Run embeds the tools of each catalogue that becomes known, in the background, until ctx ends. Until a catalogue's
// embeddings are there, its tools are found by the local index, and results say so.
func (s *Embeddings) Run(ctx context.Context) {
	if s == nil {
		return
	}
	var again <-chan time.Time
	pause := embedAgain
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
			pause = embedAgain
		case <-again:
		}
		again = nil
		if err := s.load(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "no embeddings, tools are found by words", "again_in", pause, "error", err)
			again = time.After(pause)
			pause = min(2*pause, embedAgainMost)
		}
	}
}

// load embeds what is pending, and what was late: that is forgotten if it fails.
func (s *Embeddings) load(ctx context.Context) error {
	for {
		s.mu.Lock()
		if len(s.pending) == 0 {
			late := s.late
			s.late = nil
			s.mu.Unlock()
			return selection.Remember(ctx, s.embedder, s.opts.Cache, late)
		}
		x := s.pending[0]
		s.mu.Unlock()
		if err := x.hybrid.Load(ctx, x.local); err != nil {
			return err
		}
		s.mu.Lock()
		s.pending = slices.DeleteFunc(s.pending, func(p index) bool { return p.hybrid == x.hybrid })
		s.mu.Unlock()
	}
}

// index is the search of one catalogue.
type index struct {
	local  *selection.Snapshot
	hybrid *selection.Hybrid // nil: there are no embeddings
}

// index returns the search of a catalogue, with the embeddings that are in the cache.
func (s *Embeddings) index(local *selection.Snapshot) index {
	x := index{local: local}
	if s == nil || local.Len() == 0 {
		return x
	}
	x.hybrid = selection.NewHybrid(local, s.embedder, s.opts)
	x.hybrid.Swap(local)
	s.mu.Lock()
	s.pending = append(s.pending, x)
	s.pending = s.pending[max(0, len(s.pending)-maxPending):]
	s.mu.Unlock()
	s.rouse()
	return x
}

// Select ranks; see selection.Snapshot and selection.Hybrid.
func (x index) Select(ctx context.Context, r selection.Request) (selection.Response, error) {
	if x.hybrid == nil {
		return x.local.Select(r)
	}
	return x.hybrid.Select(ctx, r)
}
