package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"github.com/codefleet/codefleet/internal/text"
)

// OpenMeteo configures the weather of open-meteo.com, which needs no key.
type OpenMeteo struct {
	Client *http.Client
	// URLs of the services, without paths. The defaults are those of open-meteo.com.
	ForecastURL, GeocodingURL string
}

const (
	forecastURL  = "https://api.open-meteo.com"
	geocodingURL = "https://geocoding-api.open-meteo.com"

	requestTimeout = 10 * time.Second
	maxResponse    = 1 << 20          // bytes
	maxCached      = 1000             // entries of each of the two caches
	keepForecast   = 15 * time.Minute // how often open-meteo updates the current weather
	keepPlaces     = 24 * time.Hour   // places do not move
)

// openMeteo is a source that asks open-meteo. It never makes up a value: if open-meteo does not have one, the call
// fails. Responses are validated, because they are untrusted.
type openMeteo struct {
	OpenMeteo
	now       func() time.Time
	places    *cache[[]geoPlace]
	forecasts *cache[outlook]
}

func newOpenMeteo(o OpenMeteo, now func() time.Time) *openMeteo {
	if o.ForecastURL == "" {
		o.ForecastURL = forecastURL
	}
	if o.GeocodingURL == "" {
		o.GeocodingURL = geocodingURL
	}
	return &openMeteo{OpenMeteo: o, now: now, places: newCache[[]geoPlace](), forecasts: newCache[outlook]()}
}

func (*openMeteo) name() string { return "open-meteo" }

func (o *openMeteo) current(ctx context.Context, location string) (currentWeather, place, error) {
	found, where, err := o.outlook(ctx, location)
	return found.current, where, err
}

func (o *openMeteo) forecast(ctx context.Context, location string, n int) ([]day, place, error) {
	found, where, err := o.outlook(ctx, location)
	if err != nil {
		return nil, place{}, err
	}
	if n > len(found.days) {
		return nil, place{}, fmt.Errorf("open-meteo forecasts %d days for %s, not %d", len(found.days), where.name, n)
	}
	return found.days[:n], where, nil
}

// outlook returns the weather at a location. One response of open-meteo serves all calls within a quarter of an hour by
// the clock. Midnight is never inside such a quarter, in any time zone, so the first day of the response stays today.
func (o *openMeteo) outlook(ctx context.Context, location string) (outlook, place, error) {
	query, err := parseLocation(location)
	if err != nil {
		return outlook{}, place{}, err
	}
	key := fmt.Sprintf("%s@%d", query.key, o.now().Truncate(keepPlaces).Unix())
	list, err := o.places.get(ctx, key, func(ctx context.Context) ([]geoPlace, error) {
		return o.search(ctx, query.name)
	})
	if err != nil {
		return outlook{}, place{}, err
	}
	chosen, where, err := query.choose(list)
	if err != nil {
		return outlook{}, place{}, err
	}
	began := o.now().Truncate(keepForecast)
	lat, lon := decimal(chosen.Latitude), decimal(chosen.Longitude)
	key = fmt.Sprintf("%s,%s@%d", lat, lon, began.Unix())
	found, err := o.forecasts.get(ctx, key, func(ctx context.Context) (outlook, error) {
		var response forecastResponse
		if err := o.request(ctx, o.ForecastURL+"/v1/forecast", url.Values{
			"latitude": {lat}, "longitude": {lon}, "timezone": {"auto"}, "forecast_days": {"16"},
			"current": {"temperature_2m,relative_humidity_2m,weather_code,wind_speed_10m"},
			"daily":   {"weather_code,temperature_2m_max,temperature_2m_min,precipitation_probability_max"},
		}, &response); err != nil {
			return outlook{}, err
		}
		return response.outlook(o.now())
	})
	return found, where, err
}

// search returns the places with a name, the likeliest first, as open-meteo orders them.
func (o *openMeteo) search(ctx context.Context, name string) ([]geoPlace, error) {
	var response struct {
		Results []geoPlace `json:"results"` // absent without results
	}
	err := o.request(ctx, o.GeocodingURL+"/v1/search", url.Values{
		"name": {name}, "count": {"50"}, "language": {"en"}, "format": {"json"},
	}, &response)
	return response.Results, err
}

// request sends one request and decodes its response.
func (o *openMeteo) request(ctx context.Context, address string, query url.Values, response any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"?"+query.Encode(), nil)
	if err != nil {
		return fmt.Errorf("ask open-meteo: %w", err)
	}
	req.Header.Set("User-Agent", "codefleet")
	resp, err := o.Client.Do(req)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // without the address
		}
		return fmt.Errorf("open-meteo cannot be reached: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	if err != nil {
		return fmt.Errorf("read open-meteo's response: %w", err)
	}
	if len(body) > maxResponse {
		return fmt.Errorf("open-meteo's response exceeds %d bytes", maxResponse)
	}
	if resp.StatusCode != http.StatusOK {
		return refusal(resp.StatusCode, body)
	}
	if err := json.Unmarshal(body, response); err != nil {
		return fmt.Errorf("decode open-meteo's response: %w", err)
	}
	return nil
}

// refusal returns the error for a response whose status is not 200. Open-meteo gives a reason in JSON.
func refusal(status int, body []byte) error {
	var refused struct {
		Reason string `json:"reason"`
	}
	reason := ""
	if json.Unmarshal(body, &refused) == nil && refused.Reason != "" {
		reason = ": " + clean(refused.Reason)
	}
	switch {
	case status == http.StatusTooManyRequests:
		return fmt.Errorf("open-meteo accepts no more requests for now%s", reason)
	case status >= http.StatusInternalServerError:
		return fmt.Errorf("open-meteo does not work at the moment (HTTP %d)%s", status, reason)
	}
	return fmt.Errorf("open-meteo refused the request (HTTP %d)%s", status, reason)
}

// clean returns untrusted text on one line, with hidden characters spelled out, truncated to 100 bytes.
func clean(s string) string { return text.Truncate(text.Printable(text.OneLine(s)), 100) }

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// cache keeps the values that were used last. Concurrent calls for one key share a request.
type cache[T any] struct {
	kept   *lru.Cache[string, T]
	flight singleflight.Group
}

func newCache[T any]() *cache[T] {
	kept, err := lru.New[string, T](maxCached)
	if err != nil {
		panic(err) // the size is positive
	}
	return &cache[T]{kept: kept}
}

// get returns the value of a key. It calls fetch if the cache does not have it. Errors are not kept.
func (c *cache[T]) get(ctx context.Context, key string, fetch func(context.Context) (T, error)) (T, error) {
	if v, ok := c.kept.Get(key); ok {
		return v, nil
	}
	done := c.flight.DoChan(key, func() (any, error) {
		// The request continues without the caller that began it, because others may wait for it.
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer stop()
		v, err := fetch(ctx)
		if err == nil {
			c.kept.Add(key, v)
		}
		return v, err
	})
	var none T
	select {
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case r := <-done:
		v, ok := r.Val.(T)
		if r.Err != nil || !ok {
			return none, r.Err
		}
		return v, nil
	}
}
