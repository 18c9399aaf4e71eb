package httpserve_test

import (
	"net/http/httptest"
	"testing"

	"github.com/codefleet/codefleet/internal/httpserve"
)

func TestHostAllowed(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost:8080": true, "127.0.0.1": true, "[::1]:80": true, "fleet.example:8443": true, "fleet.example": true,
		"with.port:1": true, "with.port": false, "evil.example": false, "": false, "a b": false,
		"LocalHost:80": true, "Fleet.Example": true, "fleet.example.:8443": true, "upper.example": true,
		"WITH.port:1": true, "with.port.:1": true, "with.port.:2": false, ".": false,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		if got := httpserve.HostAllowed(r, []string{"fleet.example", "with.port:1", "Upper.Example."}); got != want {
			t.Errorf("HostAllowed(%q) = %v, want %v", host, got, want)
		}
	}
}

func TestOriginAllowed(t *testing.T) {
	for origin, want := range map[string]bool{
		"": true, "https://console.example": true, "http://fleet:1": true, "https://fleet:1": true,
		"https://Console.Example": true, "https://upper.example": true, "http://FLEET:1": true,
		"https://fleet": false, "null": false, "https://evil.example": false,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = "fleet:1"
		r.Header.Set("Origin", origin)
		allowed := []string{"https://console.example", "https://Upper.Example"}
		if got := httpserve.OriginAllowed(r, allowed); got != want {
			t.Errorf("OriginAllowed(%q) = %v, want %v", origin, got, want)
		}
	}
}
