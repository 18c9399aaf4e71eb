package builtin

import (
	"encoding/json"
	"os"
	"testing"
	"time"
)

// A response that is accepted has plausible values only.
func FuzzOutlook(f *testing.F) {
	data, err := os.ReadFile("testdata/forecast_berlin.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		var response forecastResponse
		if json.Unmarshal(data, &response) != nil {
			return
		}
		got, err := response.outlook(time.Date(2026, 7, 1, 15, 5, 0, 0, time.UTC))
		if err != nil {
			return
		}
		if got.current.condition == "" || got.current.humidity < 0 || got.current.humidity > 100 {
			t.Errorf("outlook() = %+v, want a condition and a humidity in percent", got)
		}
		for _, d := range got.days {
			if d.condition == "" || d.low > d.high || d.precipitation < 0 || d.precipitation > 100 {
				t.Errorf("day = %+v, want a condition, low ≤ high and a chance in percent", d)
			}
		}
	})
}
