package builtin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Live returns the weather at a location for n days, starting today. n is at least 1. Errors reach the program
// that calls the tool.
type Live func(ctx context.Context, location string, n int) ([]Day, error)

// Day is the weather of one day at one place.
type Day struct {
	Date          time.Time // UTC, midnight
	High, Low     float64   // °C
	Now           float64   // °C, only for today
	Condition     string
	Humidity      int     // %
	WindSpeed     float64 // km/h
	Precipitation int     // chance, %
}

type weatherArgs struct {
	Location string `json:"location"`
	Units    string `json:"units,omitempty"`
	Days     int    `json:"days,omitempty"`
}

type report struct {
	Location    string  `json:"location"`
	Temperature int     `json:"temperature"`
	Unit        string  `json:"unit"`
	Condition   string  `json:"condition"`
	Humidity    int     `json:"humidity"`
	WindSpeed   float64 `json:"wind_speed"`
	Timestamp   string  `json:"timestamp"`
	Source      string  `json:"source"`
}

type forecast struct {
	Location string        `json:"location"`
	Unit     string        `json:"unit"`
	Forecast []forecastDay `json:"forecast"`
	Source   string        `json:"source"`
}

type forecastDay struct {
	Date          string `json:"date"`
	High          int    `json:"high"`
	Low           int    `json:"low"`
	Condition     string `json:"condition"`
	Precipitation int    `json:"precipitation_chance"`
}

const (
	locationSchema = `"location":{"type":"string",` +
		`"minLength":1,"maxLength":200,"description":"City, as in San Francisco, CA"}`
	unitsSchema = `"units":{"type":"string","enum":["celsius","fahrenheit"],` +
		`"default":"celsius","description":"Unit of temperatures"}`
	sourceSchema = `"source":{"type":"string","enum":["live","sample"],` +
		`"description":"live, or sample: made up from the location and the date"}`
	unitSchema = `"unit":{"type":"string","enum":["celsius","fahrenheit"]}`

	weatherInput = `{"type":"object","properties":{` + locationSchema + `,` + unitsSchema +
		`},"required":["location"],"additionalProperties":false}`

	weatherOutput = `{"type":"object","properties":{"location":{"type":"string"},` +
		`"temperature":{"type":"integer","description":"in the unit"},` + unitSchema + `,` +
		`"condition":{"type":"string"},"humidity":{"type":"integer","description":"percent"},` +
		`"wind_speed":{"type":"number","description":"km/h"},` +
		`"timestamp":{"type":"string","format":"date-time"},` + sourceSchema +
		`},"required":["location","temperature","unit","condition","humidity","wind_speed","timestamp","source"]}`

	forecastInput = `{"type":"object","properties":{` + locationSchema + `,` +
		`"days":{"type":"integer","minimum":1,"maximum":16,"default":5,` +
		`"description":"Days to forecast, today the first"},` + unitsSchema +
		`},"required":["location"],"additionalProperties":false}`

	forecastOutput = `{"type":"object","properties":{"location":{"type":"string"},` + unitSchema + `,` +
		`"forecast":{"type":"array","items":{"type":"object","properties":{` +
		`"date":{"type":"string","format":"date"},"high":{"type":"integer","description":"in the unit"},` +
		`"low":{"type":"integer","description":"in the unit"},` +
		`"condition":{"type":"string"},"precipitation_chance":{"type":"integer","description":"percent"}},` +
		`"required":["date","high","low","condition","precipitation_chance"]}},` + sourceSchema +
		`},"required":["location","unit","forecast","source"]}`
)

func weather(opts Options) *mcp.Server {
	s := newServer("weather")
	w := &forecaster{now: opts.Now, live: opts.Live}
	mcp.AddTool(s, &mcp.Tool{
		Name: "get_weather", Description: "Get current weather information for a location.",
		InputSchema: json.RawMessage(weatherInput), OutputSchema: json.RawMessage(weatherOutput),
		Annotations: readOnly(true),
	}, w.current)
	mcp.AddTool(s, &mcp.Tool{
		Name: "get_forecast", Description: "Get weather forecast for a location.",
		InputSchema: json.RawMessage(forecastInput), OutputSchema: json.RawMessage(forecastOutput),
		Annotations: readOnly(true),
	}, w.forecast)
	return s
}

type forecaster struct {
	now  func() time.Time
	live Live
}

func (w *forecaster) current(ctx context.Context, _ *mcp.CallToolRequest, in weatherArgs) (*mcp.CallToolResult, report,
	error,
) {
	days, source, err := w.days(ctx, in.Location, 1)
	if err != nil {
		return nil, report{}, err
	}
	unit := cmp.Or(in.Units, celsius)
	d := days[0]
	return nil, report{
		Location: in.Location, Temperature: degrees(d.Now, unit), Unit: unit, Condition: d.Condition,
		Humidity:  d.Humidity,
		WindSpeed: d.WindSpeed, Timestamp: d.Date.Add(12 * time.Hour).Format(time.RFC3339), Source: source,
	}, nil
}

func (w *forecaster) forecast(ctx context.Context, _ *mcp.CallToolRequest, in weatherArgs) (*mcp.CallToolResult,
	forecast, error,
) {
	days, source, err := w.days(ctx, in.Location, cmp.Or(in.Days, 5))
	if err != nil {
		return nil, forecast{}, err
	}
	unit := cmp.Or(in.Units, celsius)
	out := forecast{Location: in.Location, Unit: unit, Source: source}
	for _, d := range days {
		out.Forecast = append(out.Forecast, forecastDay{
			Date: d.Date.Format(time.DateOnly), High: degrees(d.High, unit), Low: degrees(d.Low, unit),
			Condition: d.Condition, Precipitation: d.Precipitation,
		})
	}
	return nil, out, nil
}

func (w *forecaster) days(ctx context.Context, location string, n int) ([]Day, string, error) {
	if w.live == nil {
		return sample(location, w.now().UTC().Truncate(24*time.Hour), n), "sample", nil
	}
	days, err := w.live(ctx, location, n)
	if err == nil && len(days) < n {
		err = fmt.Errorf("the weather service returned %d of %d days", len(days), n)
	}
	if err != nil {
		return nil, "", err
	}
	return days[:n], "live", nil
}

const celsius = "celsius" // the schemas allow only this and fahrenheit

// degrees converts a temperature in °C to the unit.
func degrees(t float64, unit string) int {
	if unit != celsius {
		t = t*9/5 + 32
	}
	return int(math.Round(t))
}

var conditions = []string{"sunny", "cloudy", "partly cloudy", "rainy", "windy"}

// sample derives weather from the location and the date, so that it is the same on every host all day.
func sample(location string, from time.Time, n int) []Day {
	days := make([]Day, n)
	for i := range days {
		date := from.AddDate(0, 0, i)
		sum := sha256.Sum256([]byte(strings.ToLower(strings.TrimSpace(location)) + "\n" + date.Format(time.DateOnly)))
		pick := func(k, low, high int) int {
			return low + int(binary.BigEndian.Uint16(sum[2*k:]))%(high-low+1)
		}
		low := pick(0, 8, 15)
		high := low + pick(1, 8, 15)
		days[i] = Day{
			Date: date, Low: float64(low), High: float64(high), Now: float64(pick(2, max(low, 15), high)),
			Condition: conditions[pick(3, 0, len(conditions)-1)], Humidity: pick(4, 40, 80),
			WindSpeed: float64(pick(5, 5, 25)), Precipitation: pick(6, 0, 50),
		}
	}
	return days
}
