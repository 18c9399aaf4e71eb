package expression_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/expression"
)

// chain returns a condition that repeats a term as often as the source may be long.
func chain(term, with string) string {
	return term + strings.Repeat(with+term, (expression.MaxSource-len(term))/len(with+term))
}

// zeros returns a list of n zeros as JSON.
func zeros(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("0,", n), ",") + "]" }

// sum returns an expression for a list of n times data.a.
func sum(n int) string { return "data.a" + strings.Repeat("+data.a", n-1) }

// Operations that walk large values cost as much as they walk, so an expression cannot repeat them for long.
func TestWalksCost(t *testing.T) {
	text := strings.Repeat("a", 200_000)
	repeated := strings.Repeat("(abcdefgh){1000}", 100)
	values := decode(t, map[string]json.RawMessage{"data": json.RawMessage(
		`{"a":` + zeros(200_000) + `,"s":"` + text + `","t":"` + text + `","text":"` + text[:64_000] +
			`","few":` + zeros(3000) + `,"three":[1,2,3]}`,
	)})
	for source, refused := range map[string]bool{
		chain("data==data", "&&"):           true,
		chain("data!=data", "||"):           true,
		chain("1 in data.a", "||"):          true,
		chain("[data]!=[]", "&&"):           true,
		chain("{'a':data}!={}", "&&"):       true,
		sum(8) + " == " + sum(8):            true,
		"data.s.matches('(a?){200}b')":      true,
		"''.matches('" + repeated + "')":    true,
		"data.text.matches('\\\\p{L}{3,}')": false, // 64 KB

		"data.few.map(i, data.s) == data.few.map(i, data.t)": true, // it compares 600 MB

		"data.three == [1, 2, 3] && data.few != data.three && 1 in data.three": false,
		"data.few == data.few && !(1 in data.few)":                             false,
		"'abc'.matches('^[a-c]+$') && !data.three.exists(i, i in [4])":         false,
	} {
		condition, err := expression.Compile(source, "data")
		if err != nil {
			t.Fatalf("Compile(%.40q) = %v, want nil", source, err)
		}
		holds, err := condition.HoldsEventually(t.Context(), values)
		tooMuch := err != nil && strings.Contains(err.Error(), "cost limit exceeded")
		if tooMuch != refused || holds == refused {
			t.Errorf("Holds(%.40q) = %t, %v, want that it costs too much: %t", source, holds, err, refused)
		}
	}
}

// An expression without loops ends with its context, too.
func TestInterruption(t *testing.T) {
	values := decode(t, map[string]json.RawMessage{"data": json.RawMessage(zeros(10))})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, source := range []string{"data == data", "data.exists(d, d == 1)", "1 in data || data.none == 1"} {
		condition, err := expression.Compile(source, "data")
		if err != nil {
			t.Fatal(err)
		}
		if holds, err := condition.Holds(ctx, values); holds || !expression.Interrupted(err) {
			t.Errorf("Holds(%q) with a cancelled context = %t, %v, want an interruption", source, holds, err)
		}
		value, err := expression.CompileValue(source, "data")
		if err != nil {
			t.Fatal(err)
		}
		if v, err := value.Value(ctx, values); !expression.Interrupted(err) {
			t.Errorf("Value(%q) with a cancelled context = %s, %v, want an interruption", source, v, err)
		}
	}
	condition, err := expression.Compile("data.none == 1", "data")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := condition.Holds(t.Context(), values); err == nil || expression.Interrupted(err) {
		t.Errorf("Holds of a field that is missing = %v, want an error that is no interruption", err)
	}
}

// TestInterruptionWithACause checks that the end of the caller's context is an interruption whatever its cause is, and
// that a limit of the evaluation itself is none.
func TestInterruptionWithACause(t *testing.T) {
	values := decode(t, map[string]json.RawMessage{"data": json.RawMessage(zeros(1000))})
	lost := errors.New("the lease was lost")
	ended, end := context.WithCancelCause(t.Context())
	end(lost)
	slow, stop := context.WithTimeoutCause(t.Context(), 0, expression.ErrTooSlow) // as the evaluation's own limit
	defer stop()
	const costly = "data.all(a, data.all(b, data.all(c, a + b + c == 0)))"
	for name, c := range map[string]struct {
		ctx         context.Context
		source      string
		interrupted bool
		want        string
	}{
		"ended":    {ended, "data == data", true, lost.Error()},
		"too slow": {slow, "data == data", false, expression.ErrTooSlow.Error()},
		"costly":   {t.Context(), costly, false, ""}, // on a busy machine it is too slow first
		"missing":  {t.Context(), "data[5000] == 1", false, "out of bounds"},
	} {
		condition, err := expression.Compile(c.source, "data")
		if err != nil {
			t.Fatal(err)
		}
		_, err = condition.Holds(c.ctx, values)
		if err == nil || !strings.Contains(err.Error(), c.want) || expression.Interrupted(err) != c.interrupted {
			t.Errorf("%s: Holds(%q) = %v, want %q, an interruption: %t", name, c.source, err, c.want, c.interrupted)
		}
	}
}
