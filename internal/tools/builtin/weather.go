package builtin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// source is where weather comes from. Errors reach the program that calls a tool.
type source interface {
	// current returns the weather now.
	current(ctx context.Context, location string) (currentWeather, place, error)
	// forecast returns the weather of n days, at least 1, starting today.
	forecast(ctx context.Context, location string, n int) ([]day, place, error)
	// name is the value of "source" in results.
	name() string
}

// place is what a source found for a location. It is empty for samples.
type place struct {
	name   string   // with region and country
	others []string // places of the same name that were not chosen
}

// currentWeather is the weather now at one place.
type currentWeather struct {
	at          time.Time
	temperature float64 // °C
	condition   string
	humidity    int     // %
	windSpeed   float64 // km/h
}

// day is the weather of one day at one place.
type day struct {
	date          string  // such as 2026-07-01
	high, low     float64 // °C
	condition     string
	precipitation int // chance, %
}

// weatherArgs are the arguments of both tools; get_weather does not use Days.
type weatherArgs struct {
	Location string `json:"location"`
	Units    string `json:"units,omitempty"`
	Days     int    `json:"days,omitempty"`
}

// report is the result of get_weather.
type report struct {
	Location    string   `json:"location"`
	Temperature int      `json:"temperature"`
	Unit        string   `json:"unit"`
	Condition   string   `json:"condition"`
	Humidity    int      `json:"humidity"`
	WindSpeed   float64  `json:"wind_speed"`
	Timestamp   string   `json:"timestamp"`
	Source      string   `json:"source"`
	Place       string   `json:"place,omitempty"`
	OtherPlaces []string `json:"other_places,omitempty"`
}

// forecast is the result of get_forecast.
type forecast struct {
	Location    string        `json:"location"`
	Unit        string        `json:"unit"`
	Forecast    []forecastDay `json:"forecast"`
	Source      string        `json:"source"`
	Place       string        `json:"place,omitempty"`
	OtherPlaces []string      `json:"other_places,omitempty"`
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
	sourceSchema = `"source":{"type":"string","enum":["open-meteo","sample"],` +
		`"description":"open-meteo, or sample: made up from the location and the date"},` +
		`"place":{"type":"string","description":"the place that open-meteo found, with region and country"},` +
		`"other_places":{"type":"array","items":{"type":"string"},` +
		`"description":"places of the same name that were not chosen"}`
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
	w := &forecaster{source: sample{now: opts.Now}}
	if opts.OpenMeteo != nil {
		w.source = newOpenMeteo(*opts.OpenMeteo, opts.Now)
	}
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

type forecaster struct{ source source }

func (w *forecaster) current(ctx context.Context, _ *mcp.CallToolRequest, in weatherArgs) (*mcp.CallToolResult, report,
	error,
) {
	current, where, err := w.source.current(ctx, in.Location)
	if err != nil {
		return nil, report{}, err
	}
	unit := cmp.Or(in.Units, celsius)
	return nil, report{
		Location: in.Location, Temperature: degrees(current.temperature, unit), Unit: unit,
		Condition: current.condition, Humidity: current.humidity, WindSpeed: current.windSpeed,
		Timestamp: current.at.Format(time.RFC3339),
		Source:    w.source.name(), Place: where.name, OtherPlaces: where.others,
	}, nil
}

func (w *forecaster) forecast(ctx context.Context, _ *mcp.CallToolRequest, in weatherArgs) (*mcp.CallToolResult,
	forecast, error,
) {
	days, where, err := w.source.forecast(ctx, in.Location, cmp.Or(in.Days, 5))
	if err != nil {
		return nil, forecast{}, err
	}
	unit := cmp.Or(in.Units, celsius)
	out := forecast{
		Location: in.Location, Unit: unit, Source: w.source.name(), Place: where.name, OtherPlaces: where.others,
	}
	for _, d := range days {
		out.Forecast = append(out.Forecast, forecastDay{
			Date: d.date, High: degrees(d.high, unit), Low: degrees(d.low, unit),
			Condition: d.condition, Precipitation: d.precipitation,
		})
	}
	return nil, out, nil
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

// sample makes up weather from the location and the date, so that it is the same on every host all day.
type sample struct{ now func() time.Time }

func (sample) name() string { return "sample" }

func (s sample) current(_ context.Context, location string) (currentWeather, place, error) {
	date := s.now().UTC().Truncate(24 * time.Hour)
	d, pick := sampleDay(location, date)
	return currentWeather{
		at: date.Add(12 * time.Hour), temperature: float64(pick(2, max(int(d.low), 15), int(d.high))),
		condition: d.condition, humidity: pick(4, 40, 80), windSpeed: float64(pick(5, 5, 25)),
	}, place{}, nil
}

func (s sample) forecast(_ context.Context, location string, n int) ([]day, place, error) {
	days := make([]day, n)
	for i := range days {
		days[i], _ = sampleDay(location, s.now().UTC().AddDate(0, 0, i))
	}
	return days, place{}, nil
}

// sampleDay makes up the weather of a day from a hash of the place and the date. It also returns pick, which returns
// the k-th number of this hash, brought into the range from low to high.
func sampleDay(location string, at time.Time) (d day, pick func(k, low, high int) int) {
	date := at.Format(time.DateOnly)
	sum := sha256.Sum256([]byte(strings.ToLower(strings.TrimSpace(location)) + "\n" + date))
	pick = func(k, low, high int) int {
		return low + int(binary.BigEndian.Uint16(sum[2*k:]))%(high-low+1)
	}
	low := pick(0, 8, 15)
	return day{
		date: date, low: float64(low), high: float64(low + pick(1, 8, 15)),
		condition: conditions[pick(3, 0, len(conditions)-1)], precipitation: pick(6, 0, 50),
	}, pick
}
