package selection

import (
	"cmp"
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
	// Embed returns one vector for each text, all of the same length. It is safe for concurrent use.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
	// Model returns the model and the requested length of the vectors. The length 0 means the model's default.
	Model() (name string, dimensions int)
}

// Cache keeps vectors by the hash of the model, the length and the text. *MemoryCache and *FileCache implement it.
type Cache interface {
	Get(key [sha256.Size]byte) ([]float32, bool)
	Put(key [sha256.Size]byte, vector []float32) error
}

// HybridOptions are the settings of a Hybrid. Zero values mean the defaults.
type HybridOptions struct {
	Deadline time.Duration // for embedding the queries of one Select; the default is 300 ms
	Cache    Cache         // the default is a new MemoryCache

	// OnTimeout, if not nil, receives the queries whose vectors missed the deadline. The caller may fetch them later
	// with FillCache. OnTimeout must not block.
	OnTimeout func(queries []string)
}

const (
	embedBatch = 256 // texts of one request of Load

	// backgroundTimeout limits one request of Load or FillCache: a local server without a GPU may take minutes.
	backgroundTimeout = 5 * time.Minute
)

// FillCache embeds the texts that are not in the cache. It may take minutes.
func FillCache(ctx context.Context, e Embedder, c Cache, texts []string) error {
	return embed(ctx, e, c, texts, make([][]float32, len(texts)), backgroundTimeout)
}

// Hybrid ranks with an Index and with an Embedder's vectors. It takes no longer than the local ranking and the deadline
// together. A failure of the network is not an error: Response.Degraded says why vectors are missing. It is safe for
// concurrent use.
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
	opts.Deadline = cmp.Or(opts.Deadline, 300*time.Millisecond)
	if opts.Cache == nil {
		opts.Cache = NewMemoryCache(100_000)
	}
	return &Hybrid{embedder: e, opts: opts, index: s, tools: newDense(make([][]float32, s.Len()))}
}

// Load embeds the tools of an index that are not in the cache, and then makes it the current index. Until then, and
// after an error, Select uses the previous index. A retry continues where the last Load failed, because finished
// batches are in the cache. Load may take minutes: run it in the background.
func (h *Hybrid) Load(ctx context.Context, s *Index) error {
	texts := make([]string, s.Len())
	for i := range s.tools {
		texts[i] = s.tools[i].content()
	}
	vectors := make([][]float32, len(texts))
	for from := 0; from < len(texts); from += embedBatch {
		to := min(from+embedBatch, len(texts))
		err := embed(ctx, h.embedder, h.opts.Cache, texts[from:to], vectors[from:to], backgroundTimeout)
		if err != nil {
			return fmt.Errorf("embed tools %d to %d of %d: %w", from+1, to, len(texts), err)
		}
	}
	h.swap(s, newDense(vectors))
	return nil
}

// Swap replaces the index at once and uses the vectors that are in the cache. Load adds the others.
func (h *Hybrid) Swap(s *Index) {
	model, dimensions := h.embedder.Model()
	vectors := make([][]float32, s.Len())
	for i := range s.tools {
		vectors[i], _ = h.opts.Cache.Get(contentKey(model, dimensions, s.tools[i].content()))
	}
	h.swap(s, newDense(vectors))
}

func (h *Hybrid) swap(s *Index, tools *dense) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.index, h.tools = s, tools
}

// Select is like Index.Select, but also uses embeddings.
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

// dense returns one list for each query, and the reason if all lists or some tools' vectors are missing.
func (h *Hybrid) dense(
	ctx context.Context, queries []string, tools *dense, allowed func(tool int32) bool,
) ([]denseList, string) {
	if tools.missing == len(tools.vectors) {
		return nil, "the tools have no embeddings yet"
	}
	texts := make([]string, len(queries))
	for i, q := range queries {
		texts[i] = text.OneLine(q)
	}
	vectors := make([][]float32, len(queries))
	if missing := fromCache(h.embedder, h.opts.Cache, texts, vectors); len(missing) > 0 {
		if reason := h.request(ctx, texts, missing, vectors); reason != "" {
			return nil, reason
		}
	}
	lists := make([]denseList, len(queries))
	for i, v := range vectors {
		lists[i] = tools.list(v, rankDepth, allowed)
	}
	if tools.missing > 0 {
		return lists, fmt.Sprintf("%d of %d tools have no embedding yet", tools.missing, len(tools.vectors))
	}
	return lists, ""
}

// request is like the function request, but asks the breaker, and informs it of the result. It returns the reason if
// the vectors are missing.
func (h *Hybrid) request(ctx context.Context, texts []string, missing []int, vectors [][]float32) string {
	if !h.breaker.closed() {
		return "the embedding endpoint failed several times in a row and is not used for half a minute"
	}
	err := request(ctx, h.embedder, h.opts.Cache, texts, missing, vectors, h.opts.Deadline)
	if err == nil {
		h.breaker.recordSuccess()
		return ""
	}
	if ctx.Err() == nil { // otherwise the caller cancelled the search, which is not a failure of the endpoint
		h.breaker.recordFailure()
		if h.opts.OnTimeout != nil && errors.Is(err, context.DeadlineExceeded) {
			h.opts.OnTimeout(texts)
		}
	}
	return "embed the query: " + reason(err)
}

func reason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no response within the deadline"
	}
	return err.Error()
}

// embed writes the texts' unit vectors to out. It requests vectors that are not in the cache from the embedder.
func embed(ctx context.Context, e Embedder, cache Cache, texts []string, out [][]float32, timeout time.Duration) error {
	if missing := fromCache(e, cache, texts, out); len(missing) > 0 {
		return request(ctx, e, cache, texts, missing, out, timeout)
	}
	return nil
}

// fromCache writes the vectors that are in the cache to out, and returns the positions of the other texts.
func fromCache(e Embedder, cache Cache, texts []string, out [][]float32) (missing []int) {
	model, dimensions := e.Model()
	for i, t := range texts {
		var ok bool
		if out[i], ok = cache.Get(contentKey(model, dimensions, t)); !ok {
			missing = append(missing, i)
		}
	}
	return missing
}

// request embeds the texts at the positions missing, and writes their vectors to out and to the cache.
func request(
	ctx context.Context, e Embedder, cache Cache, texts []string, missing []int, out [][]float32, timeout time.Duration,
) error {
	model, dimensions := e.Model()
	batch := make([]string, len(missing))
	for i, at := range missing {
		batch[i] = texts[at]
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	vectors, err := e.Embed(ctx, batch)
	if err != nil {
		return err
	}
	if len(vectors) != len(batch) {
		return fmt.Errorf("%s returned %d vectors for %d texts", model, len(vectors), len(batch))
	}
	for i, v := range vectors {
		if len(v) != len(vectors[0]) || !normalise(v) {
			return fmt.Errorf("%s returned an unusable vector of %d numbers", model, len(v))
		}
		out[missing[i]] = v
		if err := cache.Put(contentKey(model, dimensions, batch[i]), v); err != nil {
			return fmt.Errorf("cache a vector: %w", err)
		}
	}
	return nil
}

const (
	breakerFailures = 3                // failures in a row that open the breaker
	breakerOpen     = 30 * time.Second // how long the breaker stays open
)

// breaker is a circuit breaker for the embedding endpoint. After failures in a row, it stops requests for a while.
type breaker struct {
	mu        sync.Mutex
	failures  int // in a row
	openUntil time.Time
}

// closed reports whether a request may be sent.
func (b *breaker) closed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures < breakerFailures || !time.Now().Before(b.openUntil)
}

func (b *breaker) recordFailure() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures++
	b.openUntil = time.Now().Add(breakerOpen)
}

func (b *breaker) recordSuccess() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = 0
}
