package builtin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/tools/builtin"
)

// arrived is the time of the recorded forecast, plus five minutes.
var arrived = time.Date(2026, 7, 1, 15, 5, 0, 0, time.UTC)

// meteo is open-meteo in this process. It responds in the documented format and checks that requests are as documented.
type meteo struct {
	t       *testing.T
	respond func(path string, w http.ResponseWriter) bool // if it returns true, it has sent the response

	mu       sync.Mutex
	requests []url.Values
}

func (m *meteo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	m.mu.Lock()
	m.requests = append(m.requests, q)
	m.mu.Unlock()
	if m.respond != nil && m.respond(r.URL.Path, w) {
		return
	}
	file := "forecast_berlin.json"
	want := url.Values{
		"latitude": {"52.52437"}, "longitude": {"13.41053"}, "timezone": {"auto"}, "forecast_days": {"16"},
		"current": {"temperature_2m,relative_humidity_2m,weather_code,wind_speed_10m"},
		"daily":   {"weather_code,temperature_2m_max,temperature_2m_min,precipitation_probability_max"},
	}
	if r.URL.Path == "/v1/search" {
		file = "search_none.json"
		if strings.EqualFold(q.Get("name"), "Berlin") {
			file = "search_berlin.json"
		}
		want = url.Values{"name": {q.Get("name")}, "count": {"50"}, "language": {"en"}, "format": {"json"}}
	} else if q.Get("latitude") != "52.52437" { // another Berlin
		want["latitude"], want["longitude"] = q["latitude"], q["longitude"]
	}
	if diff := cmp.Diff(want, q); diff != "" || r.Method != http.MethodGet {
		m.t.Errorf("%s %s (-want +got):\n%s", r.Method, r.URL.Path, diff)
	}
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		m.t.Error(err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data)
}

// start returns the options of a weather server that asks m.
func (m *meteo) start(t *testing.T) builtin.Options {
	t.Helper()
	m.t = t
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	return builtin.Options{
		Now: func() time.Time { return arrived },
		OpenMeteo: &builtin.OpenMeteo{
			Client: server.Client(), ForecastURL: server.URL, GeocodingURL: server.URL,
		},
	}
}

func decode(t *testing.T, r result) (v map[string]any) {
	t.Helper()
	if r.IsError {
		t.Fatalf("call = error %s", r.Text)
	}
	if err := json.Unmarshal(r.Structured, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// Documented responses of open-meteo become the results of the tools.
func TestOpenMeteo(t *testing.T) {
	m := &meteo{}
	s := newServer(t, "weather", m.start(t))
	others := []any{
		"Berlin, New Hampshire, United States", "Berlin, New Jersey, United States", "Berlin, Wisconsin, United States",
	}
	want := map[string]any{
		"location": "berlin", "place": "Berlin, Deutschland", "other_places": others, "source": "open-meteo",
		"temperature": 16.0, "unit": "celsius", "condition": "rain", "humidity": 50.0, "wind_speed": 7.9,
		"timestamp": "2026-07-01T17:00:00+02:00",
	}
	if diff := cmp.Diff(want, decode(t, callOf(t, s, "get_weather", `{"location":"berlin"}`))); diff != "" {
		t.Errorf("get_weather (-want +got):\n%s", diff)
	}
	want = map[string]any{
		"location": "Berlin, DE", "place": "Berlin, Deutschland", "source": "open-meteo", "unit": "fahrenheit",
		"forecast": []any{
			map[string]any{
				"date": "2026-07-01", "high": 65.0, "low": 52.0, "condition": "light rain showers",
				"precipitation_chance": 88.0,
			},
			map[string]any{
				"date": "2026-07-02", "high": 71.0, "low": 51.0, "condition": "overcast", "precipitation_chance": 20.0,
			},
		},
	}
	got := decode(t, callOf(t, s, "get_forecast", `{"location":"Berlin, DE","days":2,"units":"fahrenheit"}`))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("get_forecast (-want +got):\n%s", diff)
	}
	if len(m.requests) != 2 {
		t.Errorf("open-meteo received %d requests for two calls about one place, want 2", len(m.requests))
	}
	if n := len(decode(t, callOf(t, s, "get_forecast", `{"location":"Berlin","days":15}`))["forecast"].([]any)); n != 15 {
		t.Errorf("get_forecast = %d days, want the 15 complete ones", n)
	}
	r := callOf(t, s, "get_forecast", `{"location":"Berlin","days":16}`)
	if want := "open-meteo forecasts 15 days for Berlin, Deutschland, not 16"; !r.IsError || r.Text != want {
		t.Errorf("get_forecast of a day without values = %+v, want %s", r, want)
	}
}

// A location chooses among places of the same name.
func TestPlaces(t *testing.T) {
	s := newServer(t, "weather", (&meteo{}).start(t))
	for location, want := range map[string]string{
		"Berlin, NH":                   "Berlin, New Hampshire, United States",
		"Berlin, new jersey, USA":      "Berlin, New Jersey, United States",
		"  BERLIN , U.S. ":             "Berlin, New Hampshire, United States",
		"Berlin, Green Lake, WI":       "Berlin, Wisconsin, United States",
		"Berlin,Deutschland":           "Berlin, Deutschland",
		"Berlin, Adams, Pennsylvania,": "East Berlin, Pennsylvania, United States",
	} {
		args, err := json.Marshal(map[string]string{"location": location})
		if err != nil {
			t.Fatal(err)
		}
		if got := decode(t, callOf(t, s, "get_weather", string(args)))["place"]; got != want {
			t.Errorf("place of %q = %v, want %s", location, got, want)
		}
	}
	for location, want := range map[string]string{
		"Berlin, Mars": `open-meteo knows no place "Berlin, Mars", but Berlin, Deutschland; ` +
			`Berlin, New Hampshire, United States; Berlin, New Jersey, United States; ` +
			`Berlin, Wisconsin, United States; East Berlin, Pennsylvania, United States`,
		"Atlantis": `open-meteo knows no place "Atlantis": give a city, as in San Francisco, CA`,
		", CA":     `", CA" is not the name of a place: give a city, as in San Francisco, CA`,
		"x":        `"x" is not the name of a place: give a city, as in San Francisco, CA`,
	} {
		r := callOf(t, s, "get_weather", fmt.Sprintf(`{"location":%q}`, location))
		if !r.IsError || r.Text != want {
			t.Errorf("get_weather(%s) = %+v, want the error %s", location, r, want)
		}
	}
}

// If open-meteo's response is missing or invalid, the call fails. It never returns a sample.
func TestOpenMeteoFails(t *testing.T) {
	send := func(status int, body string) func(string, http.ResponseWriter) bool {
		return func(_ string, w http.ResponseWriter) bool {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
			return true
		}
	}
	changed := func(old, replacement string) func(string, http.ResponseWriter) bool {
		return func(path string, w http.ResponseWriter) bool {
			if path != "/v1/forecast" {
				return false
			}
			data, err := os.ReadFile("testdata/forecast_berlin.json")
			if err != nil || !strings.Contains(string(data), old) {
				t.Errorf("forecast_berlin.json lacks %s (%v)", old, err)
			}
			_, _ = w.Write([]byte(strings.Replace(string(data), old, replacement, 1)))
			return true
		}
	}
	for _, test := range []struct {
		what    string
		respond func(string, http.ResponseWriter) bool
		want    string
	}{
		{
			"limit", send(429, `{"error":true,"reason":"Hourly API request limit exceeded. Please try again in the next hour."}`),
			"open-meteo accepts no more requests for now: Hourly API request limit exceeded. Please try again in",
		},
		{"bad request", send(400, `{"reason":"a\u0007b\n`+strings.Repeat("c", 500)+`","error":true}`), "a<U+0007>b ccc"},
		{"outage", send(502, "<html>"), "open-meteo does not work at the moment (HTTP 502)"},
		{"redirect", send(302, ""), "open-meteo refused the request (HTTP 302)"},
		{"no JSON", send(200, "<html>"), "decode open-meteo's response"},
		{"another type", send(200, `{"results":[{"name":5}]}`), "decode open-meteo's response"},
		{"too large", send(200, `{"a":"`+strings.Repeat("x", 1<<20)+`"}`), "open-meteo's response exceeds 1048576 bytes"},
		{"no place", send(200, `{"results":[{"name":"Berlin","latitude":91,"longitude":0}]}`), `knows no place "Berlin"`},
		{"unit", changed(`"temperature_2m": "°C"`, `"temperature_2m": "°F"`), `in the unit "°F"; want °C`},
		{"unit of the wind", changed(`"temperature_2m": "°C"`, `"temperature_2m": "km/h"`), `in the unit "km/h"; want °C`},
		{"zone", changed("7200", "720000"), "impossible time zone"},
		{"time", changed("2026-07-01T17:00", "now"), "its current weather has no time"},
		{"no value", changed("15.6", "null"), "it has no current weather"},
		{"heat", changed("15.6", "150"), "impossible current weather"},
		{"code", changed(`"weather_code": 63`, `"weather_code": 64`), "impossible current weather"},
		{"humidity", changed(`"relative_humidity_2m": 50`, `"relative_humidity_2m": 101`), "impossible current weather"},
		{"lists", changed("[80, 3,", "[80,"), "its days are not complete"},
		{"no days", changed(`"2026-07-01", `, ""), "its days are not complete"},
		{"yesterday", changed(`"2026-07-01"`, `"2026-06-30"`), `with "2026-06-30" as day 1, counted from 2026-07-01`},
		{"low above high", changed("11.2", "18.4"), "impossible weather for 2026-07-01"},
		{"chance", changed("[88, ", "[-1, "), "impossible weather for 2026-07-01"},
	} {
		t.Run(test.what, func(t *testing.T) {
			s := newServer(t, "weather", (&meteo{respond: test.respond}).start(t))
			for _, tool := range []string{"get_weather", "get_forecast"} {
				r := callOf(t, s, tool, `{"location":"Berlin"}`)
				if !r.IsError || !strings.Contains(r.Text, test.want) || len(r.Text) > 400 ||
					strings.Contains(r.Text, "sample") {
					t.Errorf("%s = %+v, want a short error with %q", tool, r, test.want)
				}
			}
		})
	}
}

// The first failure is not kept: the next call asks again.
func TestOpenMeteoRecovers(t *testing.T) {
	down := true
	m := &meteo{respond: func(_ string, w http.ResponseWriter) bool {
		if down {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return down
	}}
	s := newServer(t, "weather", m.start(t))
	if r := callOf(t, s, "get_weather", `{"location":"Berlin"}`); !r.IsError {
		t.Errorf("get_weather during an outage = %+v, want an error", r)
	}
	down = false
	decode(t, callOf(t, s, "get_weather", `{"location":"Berlin"}`))
}

// A response serves all calls of a quarter of an hour, and concurrent calls share a request.
func TestOpenMeteoCache(t *testing.T) {
	m := &meteo{}
	o := m.start(t)
	now := arrived
	o.Now = func() time.Time { return now }
	s := newServer(t, "weather", o)
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			r := &sdk.CallToolParams{Name: "get_weather", Arguments: map[string]any{"location": "Berlin"}}
			if _, err := s.CallTool(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	now = arrived.Add(9*time.Minute + 59*time.Second)
	decode(t, callOf(t, s, "get_weather", `{"location":"berlin, de"}`))
	if len(m.requests) != 2 {
		t.Errorf("open-meteo received %d requests in a quarter of an hour, want 2", len(m.requests))
	}
	now = arrived.Add(10 * time.Minute)
	decode(t, callOf(t, s, "get_weather", `{"location":"Berlin"}`))
	if len(m.requests) != 3 || m.requests[2].Has("name") {
		t.Errorf("requests = %v, want a new forecast after 15:15, of the known place", m.requests)
	}
	now = arrived.Add(24 * time.Hour)
	callOf(t, s, "get_weather", `{"location":"Berlin"}`)
	if len(m.requests) != 5 {
		t.Errorf("open-meteo received %d requests, want 5, two of them on the next day", len(m.requests))
	}
}

// If the service does not respond, the call fails after ten seconds.
func TestOpenMeteoIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := builtin.Options{OpenMeteo: &builtin.OpenMeteo{Client: &http.Client{Transport: silent{}}}}
		s := newServer(t, "weather", o)
		began := time.Now()
		r := callOf(t, s, "get_weather", `{"location":"Berlin"}`)
		if want := "open-meteo cannot be reached: context deadline exceeded"; !r.IsError || r.Text != want ||
			time.Since(began) != 10*time.Second {
			t.Errorf("get_weather = %+v after %s, want %s after 10s", r, time.Since(began), want)
		}
	})
}

// silent never responds.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}
