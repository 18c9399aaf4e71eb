package httpserve

import (
	"net"
	"net/http"
	"net/url"
	"slices"
)

// HostAllowed reports whether the Host header names this server: a loopback name, an IP address or one of
// names, with or without a port. Any other name may belong to a hostile page that resolves its own name to
// this address (DNS rebinding).
func HostAllowed(r *http.Request, names []string) bool {
	u, err := url.Parse("//" + r.Host)
	if err != nil {
		return false
	}
	name := u.Hostname()
	return name == "localhost" || net.ParseIP(name) != nil || slices.Contains(names, name) ||
		slices.Contains(names, r.Host)
}

// OriginAllowed reports whether the request comes from no web page, from one of this server, or from one of
// origins, as in "https://console.example.org".
func OriginAllowed(r *http.Request, origins []string) bool {
	o := r.Header.Get("Origin")
	return o == "" || slices.Contains(origins, o) || o == "http://"+r.Host || o == "https://"+r.Host
}
