package builtin_test

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/tools/builtin"
)

// result is a tool's result as the client receives it.
type result struct {
	Structured json.RawMessage
	Text       string
	IsError    bool
}

// call calls a tool of a new server, for which it is 1 July 2026.
func call(t *testing.T, server, tool, args string) result {
	t.Helper()
	now := time.Date(2026, 7, 1, 15, 4, 5, 0, time.UTC)
	return callOf(t, newServer(t, server, builtin.Options{Now: func() time.Time { return now }}), tool, args)
}

// newServer connects to a new server.
func newServer(t *testing.T, name string, o builtin.Options) *sdk.ClientSession {
	t.Helper()
	s, err := builtin.New(name, o)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := sdk.NewInMemoryTransports()
	if _, err := s.Connect(t.Context(), theirs, nil); err != nil {
		t.Fatal(err)
	}
	cs, err := sdk.NewClient(&sdk.Implementation{Name: "test"}, nil).Connect(t.Context(), ours, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cs.Close() })
	return cs
}

// callOf calls a tool of a server.
func callOf(t *testing.T, cs *sdk.ClientSession, tool, args string) result {
	t.Helper()
	r, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
	if err != nil {
		t.Fatal(err)
	}
	structured, err := json.Marshal(r.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	return result{Structured: structured, Text: r.Content[0].(*sdk.TextContent).Text, IsError: r.IsError}
}

func TestCalculator(t *testing.T) {
	for _, test := range []struct{ tool, args, want string }{
		{"add", `{"a":2,"b":3}`, `{"result":5}`},
		{"multiply", `{"a":4,"b":7}`, `{"result":28}`},
		{"calculate", `{"expression":"2*3+4"}`, `{"result":10}`},
	} {
		if got := call(t, "calculator", test.tool, test.args); string(got.Structured) != test.want || got.IsError {
			t.Errorf("%s(%s) = %s, want %s", test.tool, test.args, got.Structured, test.want)
		}
	}
	for _, test := range []struct{ tool, args, want string }{
		{"calculate", `{"expression":"1/0"}`, "division by zero"},
		{"multiply", `{"a":1e308,"b":1e308}`, "not a finite number"},
		{"add", `{"a":1}`, "b"},
		{"add", `{"a":1,"b":2,"c":3}`, "c"},
	} {
		if got := call(t, "calculator", test.tool, test.args); !got.IsError || !strings.Contains(got.Text, test.want) {
			t.Errorf("%s(%s) = %+v, want an error with %q", test.tool, test.args, got, test.want)
		}
	}
}

func TestWeatherSamples(t *testing.T) {
	type report struct {
		Location, Unit, Condition, Timestamp, Source string
		Temperature, Humidity                        int
		WindSpeed                                    float64 `json:"wind_speed"`
	}
	getWeather := func(args string) (r report) {
		t.Helper()
		if err := json.Unmarshal(call(t, "weather", "get_weather", args).Structured, &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	celsius := getWeather(`{"location":"San Francisco, CA"}`)
	if celsius != getWeather(`{"location":"San Francisco, CA","units":"celsius"}`) {
		t.Error("equal calls have different results, want the same")
	}
	if celsius.Source != "sample" || celsius.Unit != "celsius" || celsius.Timestamp != "2026-07-01T12:00:00Z" {
		t.Errorf("get_weather = %+v, want a sample in celsius at noon", celsius)
	}
	if celsius.Temperature < 15 || celsius.Temperature > 30 || celsius.Humidity < 40 || celsius.Humidity > 80 ||
		celsius.WindSpeed < 5 || celsius.WindSpeed > 25 {
		t.Errorf("get_weather = %+v, want values in the ranges of samples", celsius)
	}
	f := getWeather(`{"location":"San Francisco, CA","units":"fahrenheit"}`)
	if want := int(math.Round(float64(celsius.Temperature)*9/5 + 32)); f.Temperature != want || f.Unit != "fahrenheit" {
		t.Errorf("get_weather in fahrenheit = %d %s, want %d", f.Temperature, f.Unit, want)
	}
	var fc struct {
		Forecast []struct {
			Date      string
			High, Low int
		}
	}
	for args, days := range map[string]int{
		`{"location":"Oslo"}`: 5, `{"location":"Oslo","days":3}`: 3, `{"location":"Oslo","days":16}`: 16,
	} {
		if err := json.Unmarshal(call(t, "weather", "get_forecast", args).Structured, &fc); err != nil {
			t.Fatal(err)
		}
		if len(fc.Forecast) != days || fc.Forecast[0].Date != "2026-07-01" || fc.Forecast[2].Date != "2026-07-03" ||
			fc.Forecast[1].High <= fc.Forecast[1].Low {
			t.Errorf("get_forecast(%s) = %+v, want %d days from 2026-07-01", args, fc, days)
		}
	}
	for _, args := range []string{
		`{"location":"Oslo","days":17}`, `{"location":""}`, `{"location":"Oslo","units":"kelvin"}`,
	} {
		if got := call(t, "weather", "get_forecast", args); !got.IsError {
			t.Errorf("get_forecast(%s) = %s, want an error", args, got.Structured)
		}
	}
}

func TestServeOnStreams(t *testing.T) {
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- builtin.Serve(t.Context(), "calculator", builtin.Options{}, inRead, outWrite) }()
	cs, err := sdk.NewClient(&sdk.Implementation{Name: "test"},
		nil).Connect(t.Context(), &sdk.IOTransport{Reader: outRead, Writer: inWrite}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "add", Arguments: map[string]any{"a": 2, "b": 3}})
	if err != nil || r.StructuredContent.(map[string]any)["result"] != 5.0 {
		t.Errorf("add = %+v, %v; want 5", r, err)
	}
	_ = cs.Close()
	if err := <-done; err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Serve = %v, want nil or the end of the streams", err)
	}
	if err := builtin.Serve(t.Context(), "nosuch", builtin.Options{}, inRead, outWrite); err == nil ||
		!strings.Contains(err.Error(), "calculator, weather") {
		t.Errorf("Serve of an unknown server = %v, want the valid servers", err)
	}
}
