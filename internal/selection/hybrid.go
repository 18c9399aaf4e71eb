package selection

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/text"
)

// Embedder turns texts into vectors. *OpenAIEmbedder implements it for all servers with OpenAI's protocol.
type Embedder interface {
	// Embed returns one vector a text, all of the same length. It is safe for concurrent use.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
	// Model returns what the vectors depend on: the model and the requested length (0: the model's default).
	Model() (name string, dimensions int)
}

// Cache keeps vectors by the hash of text, model and length. *MemoryCache and *FileCache implement it.
type Cache interface {
	Get(key [sha256.Size]byte) ([]float32, bool)
	Put(key [sha256.Size]byte, vector []float32) error
}

// HybridOptions are the settings of a Hybrid; zero values mean the defaults.
type HybridOptions struct {
	Deadline time.Duration // for the embedding of one Select's queries; 300 ms
	Batch    int           // texts a request; 256
	Trip     int           // failures in a row that open the breaker; 3
	Pause    time.Duration // how long the breaker stays open; 30 s
	Cache    Cache         // a new MemoryCache

	// OnTimeout, if not nil, receives the queries whose vectors missed the deadline; the caller may fetch them later
	// with FillCache. It must not block.
	OnTimeout func(queries []string)
}

// backgroundTimeout bounds a request in the background: a local server without a GPU may need minutes for a batch.
const backgroundTimeout = 5 * time.Minute

// FillCache embeds the texts that are not in the cache. It may take minutes.
func FillCache(ctx context.Context, e Embedder, c Cache, texts []string) error {
	return embed(ctx, e, c, texts, make([][]float32, len(texts)), backgroundTimeout)
}

// Hybrid ranks with an Index and with the vectors of an Embedder. It answers within the time of the local ranking
// plus
// the deadline. It does not fail because of the network: Response.Degraded then says why vectors are missing. It is
// safe
// for concurrent use.
type Hybrid struct {
	embedder Embedder
	opts     HybridOptions
	breaker  breaker

	mu    sync.RWMutex
	index *Index
	tools *dense
}

// NewHybrid returns a Hybrid without vectors; Load adds them.
func NewHybrid(s *Index, e Embedder, opts HybridOptions) *Hybrid {
	if opts.Deadline <= 0 {
		opts.Deadline = 300 * time.Millisecond
	}
	if opts.Batch <= 0 {
		opts.Batch = 256
	}
	if opts.Trip <= 0 {
		opts.Trip = 3
	}
	if opts.Pause <= 0 {
		opts.Pause = 30 * time.Second
	}
	if opts.Cache == nil {
		opts.Cache = NewMemoryCache(100_000)
	}
	return &Hybrid{
		embedder: e, opts: opts, breaker: breaker{trip: opts.Trip, pause: opts.Pause}, index: s,
		tools: newDense(make([][]float32, s.Len())),
	}
}

// Load embeds the tools of an index that are not in the cache, and then makes it the current index. Until then,
// and
// after an error, Select uses the previous one. A retry continues: finished batches are in the cache. Load may take
// minutes; run it in the background.
func (h *Hybrid) Load(ctx context.Context, s *Index) error {
	texts := make([]string, s.Len())
	for i := range s.tools {
		texts[i] = s.tools[i].content()
	}
	vectors := make([][]float32, len(texts))
	for from := 0; from < len(texts); from += h.opts.Batch {
		to := min(from+h.opts.Batch, len(texts))
		if err := embed(ctx, h.embedder, h.opts.Cache, texts[from:to], vectors[from:to],
			backgroundTimeout); err != nil {
			return fmt.Errorf("embed tools %d to %d of %d: %w", from, to, len(texts), err)
		}
	}
	h.swap(s, newDense(vectors))
	return nil
}

// Swap replaces the index at once, with the vectors that are in the cache; Load adds the others.
func (h *Hybrid) Swap(s *Index) {
	model, dimensions := h.embedder.Model()
	vectors := make([][]float32, s.Len())
	for i := range s.tools {
		if v, ok := h.opts.Cache.Get(contentKey(model, dimensions, s.tools[i].content())); ok {
			vectors[i] = v
		}
	}
	h.swap(s, newDense(vectors))
}

func (h *Hybrid) swap(s *Index, tools *dense) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.index, h.tools = s, tools
}

// Select is Index.Select with the lists by embeddings fused in.
func (h *Hybrid) Select(ctx context.Context, r Request) (Response, error) {
	h.mu.RLock()
	index, tools := h.index, h.tools
	h.mu.RUnlock()
	var allowed func(int32) bool
	if r.Allow != nil {
		allowed = func(tool int32) bool { return r.Allow(&index.tools[tool]) }
	}
	dense, reason := h.dense(ctx, r.Queries, tools, allowed)
	response, err := index.selectWith(r, dense)
	response.Degraded = reason
	return response, err
}

// dense returns one list a query, or the reason why there are none.
func (h *Hybrid) dense(
	ctx context.Context, queries []string, tools *dense, allowed func(tool int32) bool,
) ([]denseList, string) {
	if tools.missing == len(tools.vectors) {
		return nil, "the tools have no embeddings yet"
	}
	if !h.breaker.closed() {
		return nil, "the embedding endpoint failed several times; the next try is soon"
	}
	asked := make([]string, len(queries))
	for i, q := range queries {
		asked[i] = text.OneLine(q)
	}
	found := make([][]float32, len(queries))
	if err := embed(ctx, h.embedder, h.opts.Cache, asked, found, h.opts.Deadline); err != nil {
		if ctx.Err() == nil { // else the caller went away, and the endpoint may be fine
			h.breaker.failed()
			if h.opts.OnTimeout != nil && errors.Is(err, context.DeadlineExceeded) {
				h.opts.OnTimeout(asked)
			}
		}
		return nil, "embed the query: " + reason(err)
	}
	h.breaker.succeeded()
	lists := make([]denseList, len(queries))
	for i, v := range found {
		lists[i] = tools.list(v, rankDepth, allowed)
	}
	if tools.missing > 0 {
		return lists, fmt.Sprintf("%d of %d tools have no embedding yet", tools.missing, len(tools.vectors))
	}
	return lists, ""
}

func reason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer within the deadline"
	}
	return err.Error()
}

// embed sets out to unit vectors, from the cache or from the embedder, which has until timeout.
func embed(ctx context.Context, e Embedder, cache Cache, texts []string, out [][]float32, timeout time.Duration) error {
	model, dimensions := e.Model()
	var wanted []string
	var places []int
	for i, t := range texts {
		if v, ok := cache.Get(contentKey(model, dimensions, t)); ok {
			out[i] = v
			continue
		}
		wanted, places = append(wanted, t), append(places, i)
	}
	if len(wanted) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	vectors, err := e.Embed(ctx, wanted)
	if err != nil {
		return err
	}
	if len(vectors) != len(wanted) {
		return fmt.Errorf("%s returned %d vectors for %d texts", model, len(vectors), len(wanted))
	}
	for i, v := range vectors {
		if len(v) != len(vectors[0]) || !normalise(v) {
			return fmt.Errorf("%s returned an unusable vector of %d numbers", model, len(v))
		}
		out[places[i]] = v
		if err := cache.Put(contentKey(model, dimensions, wanted[i]), v); err != nil {
			return fmt.Errorf("cache a vector: %w", err)
		}
	}
	return nil
}

// breaker is a circuit breaker for an endpoint that keeps failing.
type breaker struct {
	trip  int
	pause time.Duration

	mu       sync.Mutex
	failures int
	until    time.Time
}

func (b *breaker) closed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures < b.trip || !time.Now().Before(b.until)
}

func (b *breaker) failed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures++
	b.until = time.Now().Add(b.pause)
}

func (b *breaker) succeeded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = 0
}
