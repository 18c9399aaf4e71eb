package toolsearch

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/selection"
	"github.com/codefleet/codefleet/internal/text"
)

// Embeddings compute and cache the vectors of catalogues' tools. Searches use them in addition to words, never instead.
// A nil *Embeddings has no vectors, so searches use words alone.
type Embeddings struct {
	embedder selection.Embedder
	opts     selection.HybridOptions
	log      *slog.Logger
	wake     chan struct{} // signals Run that pending or late has grown
	close    func() error

	mu      sync.Mutex
	pending []ranking // catalogues without embeddings, oldest first
	late    []string  // queries whose vectors missed the deadline, oldest first
}

const (
	maxPending      = 8      // catalogues in pending; older ones are dropped, and searched with the cached vectors
	maxLate         = 16     // queries in late
	vectorsInMemory = 10_000 // limit of the cache, if the options have none
	vectorsOnDisk   = 50_000 // limit of the file cache, which is read into memory: 100 MB for 512 dimensions
)

// NewEmbeddings returns embeddings that e computes while Run runs.
func NewEmbeddings(e selection.Embedder, o selection.HybridOptions, log *slog.Logger) *Embeddings {
	if o.Cache == nil {
		o.Cache = selection.NewMemoryCache(vectorsInMemory)
	}
	s := &Embeddings{embedder: e, opts: o, log: log, wake: make(chan struct{}, 1)}
	s.opts.OnTimeout = s.retryLater
	return s
}

// Hide replaces private values in texts. If it cannot judge all of them, it returns an error.
type Hide func(context.Context, []string) ([]string, error)

// OpenEmbeddings returns embeddings that a model's endpoint computes. All processes on this host share their cache,
// the file "vectors" in dir. deadline bounds the time to embed the queries of one search; 0 means the default of
// package selection. hide, which may be nil, replaces private values in the texts that the endpoint gets.
func OpenEmbeddings(
	o selection.OpenAIOptions, hide Hide, dir string, deadline time.Duration, log *slog.Logger,
) (*Embeddings, error) {
	openAI, err := selection.NewOpenAIEmbedder(o)
	if err != nil {
		return nil, fmt.Errorf("embeddings: %w", err)
	}
	embedder := selection.Embedder(openAI)
	if hide != nil {
		embedder = hiding{embedder, hide}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	cache, err := selection.OpenFileCache(filepath.Join(dir, "vectors"), vectorsOnDisk)
	if err != nil {
		return nil, err
	}
	s := NewEmbeddings(embedder, selection.HybridOptions{Deadline: deadline, Cache: cache}, log)
	s.close = cache.Close
	return s, nil
}

// hiding is an embedder that gets texts without private values.
type hiding struct {
	selection.Embedder
	hide Hide
}

// maxHidden limits a text in bytes, so that hide can judge it. The embedder uses less of it.
const maxHidden = 64 << 10

// Embed implements selection.Embedder. If hide fails, nothing is sent, and nothing is cached for these texts.
func (h hiding) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	cut := make([]string, len(texts))
	for i, s := range texts {
		cut[i] = text.Prefix(s, maxHidden)
	}
	hidden, err := h.hide(ctx, cut)
	if err != nil {
		return nil, err
	}
	return h.Embedder.Embed(ctx, hidden)
}

// Close closes the cache. Run must have ended.
func (s *Embeddings) Close() error {
	if s == nil || s.close == nil {
		return nil
	}
	return s.close()
}

// retryLater keeps queries for Run, which embeds them without the deadline of a search. Otherwise a server that loads
// its model on demand, and stops loading when the client disconnects, would never finish loading.
func (s *Embeddings) retryLater(queries []string) {
	s.mu.Lock()
	s.late = append(s.late, queries...)
	s.late = s.late[max(0, len(s.late)-maxLate):]
	s.mu.Unlock()
	s.wakeRun()
}

func (s *Embeddings) wakeRun() {
	select {
	case s.wake <- struct{}{}:
	default: // Run has not received the previous signal yet
	}
}

// The delay before a retry doubles with each consecutive failure. A new catalogue or late query resets it.
const (
	minRetryDelay = 5 * time.Second
	maxRetryDelay = 5 * time.Minute
)

// Run embeds the tools of each new catalogue until ctx ends. Until they are ready, the catalogue is searched by words,
// and results say so.
func (s *Embeddings) Run(ctx context.Context) {
	if s == nil {
		return
	}
	var retry <-chan time.Time
	delay := minRetryDelay
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
			delay = minRetryDelay
		case <-retry:
		}
		retry = nil
		if err := s.embedPending(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "embedding failed, tools are searched by words", "retry_in", delay, "error", err)
			retry = time.After(delay)
			delay = min(2*delay, maxRetryDelay)
		}
	}
}

// embedPending embeds the pending catalogues, then the late queries. It drops late queries that fail.
func (s *Embeddings) embedPending(ctx context.Context) error {
	for {
		s.mu.Lock()
		if len(s.pending) == 0 {
			late := s.late
			s.late = nil
			s.mu.Unlock()
			return selection.FillCache(ctx, s.embedder, s.opts.Cache, late)
		}
		x := s.pending[0]
		s.mu.Unlock()
		if err := x.hybrid.Load(ctx, x.local); err != nil {
			return err
		}
		s.mu.Lock()
		s.pending = slices.DeleteFunc(s.pending, func(p ranking) bool { return p.hybrid == x.hybrid })
		s.mu.Unlock()
	}
}

// ranking ranks the tools of one catalogue.
type ranking struct {
	local  *selection.Index
	hybrid *selection.Hybrid // nil without embeddings
}

// ranking returns the ranking of a catalogue. It uses the cached vectors, and has Run compute the others.
func (s *Embeddings) ranking(local *selection.Index) ranking {
	x := ranking{local: local}
	if s == nil || local.Len() == 0 {
		return x
	}
	x.hybrid = selection.NewHybrid(local, s.embedder, s.opts)
	x.hybrid.Swap(local)
	s.mu.Lock()
	s.pending = append(s.pending, x)
	s.pending = s.pending[max(0, len(s.pending)-maxPending):]
	s.mu.Unlock()
	s.wakeRun()
	return x
}

// Select ranks the tools; see selection.Index and selection.Hybrid.
func (x ranking) Select(ctx context.Context, r selection.Request) (selection.Response, error) {
	if x.hybrid == nil {
		return x.local.Select(r)
	}
	return x.hybrid.Select(ctx, r)
}
