package httpserve

import (
	"net"
	"net/http"
	"net/url"
	"slices"
)

// HostAllowed reports whether the Host header names this server: localhost, an IP address or one of names, with or
// without a port. Any other name may belong to a hostile web page whose name resolves to this address (DNS
// rebinding).
func HostAllowed(r *http.Request, names []string) bool {
	u, err := url.Parse("//" + r.Host)
	if err != nil {
		return false
	}
	name := u.Hostname()
	return name == "localhost" || net.ParseIP(name) != nil || slices.Contains(names, name) ||
		slices.Contains(names, r.Host)
}

// OriginAllowed reports whether the request does not come from a web page, or comes from a page of this server or of
// one of origins, such as "https://console.example.org".
func OriginAllowed(r *http.Request, origins []string) bool {
	o := r.Header.Get("Origin")
	return o == "" || slices.Contains(origins, o) || o == "http://"+r.Host || o == "https://"+r.Host
}
