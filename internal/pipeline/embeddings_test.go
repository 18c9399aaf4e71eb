package pipeline

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

// parasols is an embedder for which parasols are about the weather.
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
		s := newToolset("v1", shipped(t).snap, e)
		pick := func() ([]string, string) {
			t.Helper()
			ids, degraded, err := s.pick(t.Context(), "Open the parasol", []string{"*"}, nil, nil)
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
		<-time.After(embedAgain + time.Second) // of the bubble's clock
		synctest.Wait()
		ids, degraded := pick()
		if degraded != "" || !slices.ContainsFunc(ids, func(id string) bool { return strings.HasPrefix(id, "weather/") }) {
			t.Errorf("with embeddings: %v, degraded %q, want the weather", ids, degraded)
		}
		if words, _, _ := shipped(t).pick(t.Context(), "Open the parasol", []string{"*"}, nil, nil); slices.ContainsFunc(words, func(id string) bool { return strings.HasPrefix(id, "weather/") }) {
			t.Errorf("words alone find %v: the test proves nothing", words)
		}
		model.down.Store(true)
		if ids, _, err := s.pick(t.Context(), "Calculate 5 + 3", []string{"*"}, nil, nil); err != nil || ids[0] != "calculator/calculate" {
			t.Errorf("with an endpoint that fails: %v, %v, want what the words find", ids, err)
		}
	})
}

// The past adds tools to those that the words find, and takes none away.
func TestPickAddsWhatThePastUsed(t *testing.T) {
	s := shipped(t)
	past := selection.NewHistory([]selection.Past{
		selection.NewPast("prepare the monday numbers for the board", []string{"database/query", "gone/tool"}),
	})
	with, _, err := s.pick(t.Context(), "prepare the friday numbers for the board", []string{"*"}, nil, past)
	if err != nil || !slices.Contains(with, "database/query") || slices.Contains(with, "gone/tool") {
		t.Errorf("pick = %v, %v, want database/query and no tool that is gone", with, err)
	}
	denied, _, err := s.pick(t.Context(), "prepare the friday numbers for the board", []string{"calculator/*"}, nil, past)
	if err != nil || slices.Contains(denied, "database/query") {
		t.Errorf("pick = %v, %v, want no tool that the tenant may not use", denied, err)
	}
	task := "Calculate 5 + 3 and get weather for San Francisco"
	words, _, _ := s.pick(t.Context(), task, []string{"*"}, nil, nil)
	both, _, err := s.pick(t.Context(), task, []string{"*"}, nil, past)
	if err != nil || !slices.Equal(words, both) {
		t.Errorf("another task: %v, %v, want %v as without a past", both, err, words)
	}
}
