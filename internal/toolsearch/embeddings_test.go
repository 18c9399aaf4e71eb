package toolsearch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/internal/selection"
)

// parasols is an embedder that places parasols close to the tools of the server weather.
type parasols struct {
	down  atomic.Bool
	calls atomic.Int64
}

func (*parasols) Model() (string, int) { return "parasols", 2 }

func (p *parasols) Embed(_ context.Context, texts []string) ([][]float32, error) {
	p.calls.Add(1)
	if p.down.Load() {
		return nil, errors.New("endpoint responded with 503")
	}
	out := make([][]float32, len(texts))
	for i, s := range texts {
		out[i] = []float32{0.1, 1}
		if strings.Contains(s, "weather/") || strings.Contains(s, "parasol") {
			out[i] = []float32{1, 0.1}
		}
	}
	return out, nil
}

func TestEmbeddingsAreUsedOnceReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := &parasols{}
		model.down.Store(true)
		e := NewEmbeddings(model, selection.HybridOptions{}, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go e.Run(ctx)
		s := newIndex(shipped(t).Listing, e)
		pick := func() ([]string, string) {
			t.Helper()
			ids, degraded, err := s.Pick(t.Context(), wanted("Open the parasol", nil))
			if err != nil {
				t.Fatal(err)
			}
			return ids, degraded
		}
		if _, degraded := pick(); !strings.Contains(degraded, "no embeddings yet") {
			t.Errorf("before the tools are embedded: degraded = %q, want no embeddings yet", degraded)
		}
		synctest.Wait()
		model.down.Store(false)
		<-time.After(minRetryDelay + time.Second) // on the clock of the synctest bubble
		synctest.Wait()
		ids, degraded := pick()
		ofWeather := func(id string) bool { return strings.HasPrefix(id, "weather/") }
		if degraded != "" || !slices.ContainsFunc(ids, ofWeather) {
			t.Errorf("with embeddings: Pick = %v, degraded = %q, want tools of weather", ids, degraded)
		}
		words, _, _ := shipped(t).Pick(t.Context(), wanted("Open the parasol", nil))
		if slices.ContainsFunc(words, ofWeather) {
			t.Errorf("Pick by words alone = %v, want no tools of weather", words)
		}
		model.down.Store(true)
		if ids, _, err := s.Pick(t.Context(), wanted("Calculate 5 + 3", nil)); err != nil ||
			ids[0] != "calculator/calculate" {
			t.Errorf("with an endpoint that fails: Pick = %v, %v, want calculator/calculate", ids, err)
		}
	})
}

// TestEmbeddingsLoadedOnDemand uses a model that is loaded when a request needs it. Loading stops when the client
// disconnects, as a search does at its deadline. Run must request the vectors again.
func TestEmbeddingsLoadedOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := &onDemand{}
		model.load.Store(int64(time.Hour))
		e := NewEmbeddings(model, selection.HybridOptions{}, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go e.Run(ctx)
		s := newIndex(shipped(t).Listing, e)
		pick := func(task string) (degraded string) {
			t.Helper()
			_, degraded, err := s.Pick(t.Context(), wanted(task, nil))
			if err != nil {
				t.Fatal(err)
			}
			return degraded
		}
		advance := func(d time.Duration) { // on the clock of the synctest bubble
			<-time.After(d)
			synctest.Wait()
		}
		if degraded := pick("Open the parasol"); !strings.Contains(degraded, "no embeddings yet") {
			t.Errorf("while the server hangs: degraded = %q, want no embeddings yet", degraded)
		}
		synctest.Wait()
		model.load.Store(int64(3 * time.Second))
		advance(6 * time.Minute)
		if degraded := pick("Open the parasol"); degraded != "" {
			t.Errorf("once the server responds: degraded = %q, want none", degraded)
		}
		model.loaded.Store(false)
		if degraded := pick("Close the parasol"); !strings.Contains(degraded, "deadline") {
			t.Errorf("while the model is being loaded: degraded = %q, want the deadline", degraded)
		}
		advance(4 * time.Second)
		if degraded := pick("Fold the parasol"); degraded != "" {
			t.Errorf("once the model is loaded: degraded = %q, want none", degraded)
		}
	})
}

// onDemand is an embedder that must be loaded first. A client that disconnects stops the loading.
type onDemand struct {
	parasols
	load   atomic.Int64 // a time.Duration
	loaded atomic.Bool
}

func (m *onDemand) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	if !m.loaded.Load() {
		select {
		case <-time.After(time.Duration(m.load.Load())):
			m.loaded.Store(true)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return m.parasols.Embed(ctx, texts)
}

// TestPickAddsToolsFromHistory checks that the history adds tools to those found by words, and removes none.
func TestPickAddsToolsFromHistory(t *testing.T) {
	s := shipped(t)
	past := selection.NewHistory([]selection.Past{
		selection.NewPast("prepare the monday numbers for the board", []string{"database/query", "gone/tool"}),
	})
	with, _, err := s.Pick(t.Context(), wanted("prepare the friday numbers for the board", past))
	if err != nil || !slices.Contains(with, "database/query") || slices.Contains(with, "gone/tool") {
		t.Errorf("Pick = %v, %v, want database/query and no tool that no longer exists", with, err)
	}
	denied, _, err := s.Pick(t.Context(), Wanted{
		Description: "prepare the friday numbers for the board", Allow: []string{"calculator/*"}, History: past,
	})
	if err != nil || slices.Contains(denied, "database/query") {
		t.Errorf("Pick = %v, %v, want only permitted tools", denied, err)
	}
	task := "Calculate 5 + 3 and get weather for San Francisco"
	words, _, _ := s.Pick(t.Context(), wanted(task, nil))
	both, _, err := s.Pick(t.Context(), wanted(task, past))
	if err != nil || !slices.Equal(words, both) {
		t.Errorf("Pick for another task = %v, %v, want %v as without history", both, err, words)
	}
}

// TestNothingUncheckedIsEmbedded checks that the embedder gets what hide returns, and nothing if hide fails.
func TestNothingUncheckedIsEmbedded(t *testing.T) {
	model := &parasols{}
	h := hiding{model, func(_ context.Context, texts []string) ([]string, error) {
		if len(texts[0]) != maxHidden {
			t.Errorf("hide got %d bytes, want %d", len(texts[0]), maxHidden)
		}
		return nil, errors.New("the recognizer is down")
	}}
	long := []string{strings.Repeat("x", maxHidden+1)}
	if got, err := h.Embed(t.Context(), long); err == nil || model.calls.Load() > 0 {
		t.Errorf("Embed() = %v, %v after %d calls of the embedder, want an error after none", got, err,
			model.calls.Load())
	}
	h.hide = func(context.Context, []string) ([]string, error) { return []string{"parasol"}, nil }
	if got, err := h.Embed(t.Context(), []string{"x"}); err != nil || got[0][0] != 1 {
		t.Errorf("Embed() = %v, %v, want the vector of what hide returns", got, err)
	}
}
