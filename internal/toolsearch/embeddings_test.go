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

// parasols is an embedder for which parasols belong to the weather.
type parasols struct {
	down  atomic.Bool
	calls atomic.Int64
}

func (*parasols) Model() (string, int) { return "parasols", 2 }

func (p *parasols) Embed(_ context.Context, texts []string) ([][]float32, error) {
	p.calls.Add(1)
	if p.down.Load() {
		return nil, errors.New("endpoint answered 503")
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

func TestEmbeddingsJoinWhenTheyAreThere(t *testing.T) {
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
			t.Errorf("before the tools are embedded: degraded %q, want that said", degraded)
		}
		synctest.Wait()
		model.down.Store(false)
		<-time.After(minRetryDelay + time.Second) // of the bubble's clock
		synctest.Wait()
		ids, degraded := pick()
		ofWeather := func(id string) bool { return strings.HasPrefix(id, "weather/") }
		if degraded != "" || !slices.ContainsFunc(ids, ofWeather) {
			t.Errorf("with embeddings: %v, degraded %q, want the weather", ids, degraded)
		}
		words, _, _ := shipped(t).Pick(t.Context(), wanted("Open the parasol", nil))
		if slices.ContainsFunc(words, ofWeather) {
			t.Errorf("words alone find %v: the test proves nothing", words)
		}
		model.down.Store(true)
		if ids, _, err := s.Pick(t.Context(), wanted("Calculate 5 + 3", nil)); err != nil ||
			ids[0] != "calculator/calculate" {
			t.Errorf("with an endpoint that fails: %v, %v, want what the words find", ids, err)
		}
	})
}

// A local server loads its model at the first request after a pause, and stops loading when the client
// disconnects, as a search does at its deadline. Run must request the vectors again, with a time limit.
func TestEmbeddingsOfAModelThatIsLoadedOnDemand(t *testing.T) {
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
		pause := func(d time.Duration) { // of the bubble's clock
			<-time.After(d)
			synctest.Wait()
		}
		if degraded := pick("Open the parasol"); !strings.Contains(degraded, "no embeddings yet") {
			t.Errorf("while the server hangs: degraded %q, want that said", degraded)
		}
		synctest.Wait()
		model.load.Store(int64(3 * time.Second))
		pause(6 * time.Minute)
		if degraded := pick("Open the parasol"); degraded != "" {
			t.Errorf("when it has come back: degraded %q, want the embeddings", degraded)
		}
		model.loaded.Store(false)
		if degraded := pick("Close the parasol"); !strings.Contains(degraded, "deadline") {
			t.Errorf("while the model is loaded: degraded %q, want the deadline", degraded)
		}
		pause(4 * time.Second)
		if degraded := pick("Fold the parasol"); degraded != "" {
			t.Errorf("when the model is loaded: degraded %q, want none", degraded)
		}
	})
}

// onDemand takes a while to load, while a client waits.
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

// The history adds tools to those found by words, and removes none.
func TestPickAddsWhatThePastUsed(t *testing.T) {
	s := shipped(t)
	past := selection.NewHistory([]selection.Past{
		selection.NewPast("prepare the monday numbers for the board", []string{"database/query", "gone/tool"}),
	})
	with, _, err := s.Pick(t.Context(), wanted("prepare the friday numbers for the board", past))
	if err != nil || !slices.Contains(with, "database/query") || slices.Contains(with, "gone/tool") {
		t.Errorf("pick = %v, %v, want database/query and no tool that is gone", with, err)
	}
	denied, _, err := s.Pick(t.Context(), Wanted{
		Description: "prepare the friday numbers for the board", Allow: []string{"calculator/*"}, History: past,
	})
	if err != nil || slices.Contains(denied, "database/query") {
		t.Errorf("pick = %v, %v, want no tool that the tenant may not use", denied, err)
	}
	task := "Calculate 5 + 3 and get weather for San Francisco"
	words, _, _ := s.Pick(t.Context(), wanted(task, nil))
	both, _, err := s.Pick(t.Context(), wanted(task, past))
	if err != nil || !slices.Equal(words, both) {
		t.Errorf("another task: %v, %v, want %v as without a past", both, err, words)
	}
}
