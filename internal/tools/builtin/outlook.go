package builtin

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// outlook is the weather at one place, as open-meteo reports it.
type outlook struct {
	current currentWeather
	days    []day // starting today
}

// forecastResponse is a response of open-meteo to a request for a forecast. Values that open-meteo does not have are
// null.
type forecastResponse struct {
	Offset       int               `json:"utc_offset_seconds"`
	CurrentUnits map[string]string `json:"current_units"`
	DailyUnits   map[string]string `json:"daily_units"`
	Current      struct {
		Time        string   `json:"time"`
		Temperature *float64 `json:"temperature_2m"`
		Humidity    *float64 `json:"relative_humidity_2m"`
		Code        *float64 `json:"weather_code"`
		WindSpeed   *float64 `json:"wind_speed_10m"`
	} `json:"current"`
	Daily struct {
		Time          []string   `json:"time"`
		Code          []*float64 `json:"weather_code"`
		High          []*float64 `json:"temperature_2m_max"`
		Low           []*float64 `json:"temperature_2m_min"`
		Precipitation []*float64 `json:"precipitation_probability_max"`
	} `json:"daily"`
}

// Bounds of plausible values, a little outside of what was ever measured.
const (
	coldest, hottest = -100, 70 // °C
	maxWind          = 500      // km/h
	maxPercent       = 100
	maxOffset        = 18 * time.Hour // largest offset of a time zone
)

var errIncomplete = errors.New("open-meteo's response is incomplete")

// outlook returns the weather in a response that arrived at the given time. It returns an error if the response is not
// valid, for example if its first day is not the date of that time in the place's time zone.
func (r *forecastResponse) outlook(arrived time.Time) (outlook, error) {
	for _, unit := range []struct{ got, want string }{
		{r.CurrentUnits["temperature_2m"], "°C"},
		{r.CurrentUnits["wind_speed_10m"], "km/h"},
		{r.DailyUnits["temperature_2m_max"], "°C"},
		{r.DailyUnits["temperature_2m_min"], "°C"},
	} {
		if unit.got != unit.want {
			return outlook{}, fmt.Errorf("open-meteo responded in the unit %q; want %s", clean(unit.got), unit.want)
		}
	}
	offset := time.Duration(r.Offset) * time.Second
	if offset.Abs() > maxOffset {
		return outlook{}, fmt.Errorf("open-meteo responded with an impossible time zone (%d s)", r.Offset)
	}
	zone := time.FixedZone("", int(offset/time.Second))
	current, err := r.current(zone)
	if err != nil {
		return outlook{}, err
	}
	days, err := r.daily(arrived.In(zone))
	return outlook{current: current, days: days}, err
}

func (r *forecastResponse) current(zone *time.Location) (currentWeather, error) {
	c := r.Current
	at, err := time.ParseInLocation("2006-01-02T15:04", c.Time, zone)
	if err != nil {
		return currentWeather{}, fmt.Errorf("%w: its current weather has no time", errIncomplete)
	}
	if c.Temperature == nil || c.Humidity == nil || c.Code == nil || c.WindSpeed == nil {
		return currentWeather{}, fmt.Errorf("%w: it has no current weather", errIncomplete)
	}
	condition, known := wmoCodes[*c.Code]
	if !known || !between(*c.Temperature, coldest, hottest) || !between(*c.Humidity, 0, maxPercent) ||
		!between(*c.WindSpeed, 0, maxWind) {
		return currentWeather{}, errors.New("open-meteo responded with impossible current weather")
	}
	return currentWeather{
		at: at, temperature: *c.Temperature, condition: condition, humidity: round(*c.Humidity),
		windSpeed: *c.WindSpeed,
	}, nil
}

// daily returns the days from today up to the first one that lacks a value, because the last days of a response are
// often incomplete. It returns an error if the dates do not follow each other from today, or if a value is impossible.
func (r *forecastResponse) daily(today time.Time) ([]day, error) {
	d := r.Daily
	if n := len(d.Time); n == 0 || len(d.Code) != n || len(d.High) != n || len(d.Low) != n ||
		len(d.Precipitation) != n {
		return nil, fmt.Errorf("%w: its days are not complete", errIncomplete)
	}
	var days []day
	for i, date := range d.Time {
		if date != today.AddDate(0, 0, i).Format(time.DateOnly) {
			return nil, fmt.Errorf("open-meteo responded with %q as day %d, counted from %s", clean(date), i+1,
				today.Format(time.DateOnly))
		}
		if d.Code[i] == nil || d.High[i] == nil || d.Low[i] == nil || d.Precipitation[i] == nil {
			return days, nil
		}
		condition, known := wmoCodes[*d.Code[i]]
		if !known || !between(*d.High[i], coldest, hottest) || !between(*d.Low[i], coldest, *d.High[i]) ||
			!between(*d.Precipitation[i], 0, maxPercent) {
			return nil, fmt.Errorf("open-meteo responded with impossible weather for %s", date)
		}
		days = append(days, day{
			date: date, high: *d.High[i], low: *d.Low[i], condition: condition,
			precipitation: round(*d.Precipitation[i]),
		})
	}
	return days, nil
}

func between(f, low, high float64) bool { return f >= low && f <= high }

func round(f float64) int { return int(math.Round(f)) }

// wmoCodes are the weather codes that open-meteo documents.
var wmoCodes = map[float64]string{
	0: "clear", 1: "mainly clear", 2: "partly cloudy", 3: "overcast",
	45: "fog", 48: "freezing fog",
	51: "light drizzle", 53: "drizzle", 55: "heavy drizzle", 56: "light freezing drizzle", 57: "freezing drizzle",
	61: "light rain", 63: "rain", 65: "heavy rain", 66: "light freezing rain", 67: "freezing rain",
	71: "light snow", 73: "snow", 75: "heavy snow", 77: "snow grains",
	80: "light rain showers", 81: "rain showers", 82: "violent rain showers",
	85: "light snow showers", 86: "snow showers",
	95: "thunderstorm", 96: "thunderstorm with hail", 99: "thunderstorm with heavy hail",
}
