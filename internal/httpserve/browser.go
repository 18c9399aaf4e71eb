package httpserve

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// HostAllowed reports whether the Host header names this server: localhost, an IP address or one of names, with or
// without a port. Any other name may belong to a hostile web page whose name resolves to this address (DNS
// rebinding). Case and a final dot make no difference.
func HostAllowed(r *http.Request, names []string) bool {
	host := withoutDot(r.Host)
	u, err := url.Parse("//" + host)
	if err != nil {
		return false
	}
	name := u.Hostname()
	return strings.EqualFold(name, "localhost") || net.ParseIP(name) != nil ||
		slices.ContainsFunc(names, func(n string) bool {
			n = withoutDot(n)
			return strings.EqualFold(n, name) || strings.EqualFold(n, host)
		})
}

// withoutDot returns a host, with or without a port, without the final dot of its name.
func withoutDot(host string) string {
	return strings.TrimSuffix(strings.Replace(host, ".:", ":", 1), ".")
}

// OriginAllowed reports whether the request does not come from a web page, or comes from a page of this server or of
// one of origins, such as "https://console.example.org". Case makes no difference.
func OriginAllowed(r *http.Request, origins []string) bool {
	o := r.Header.Get("Origin")
	return o == "" || strings.EqualFold(o, "http://"+r.Host) || strings.EqualFold(o, "https://"+r.Host) ||
		slices.ContainsFunc(origins, func(allowed string) bool { return strings.EqualFold(o, allowed) })
}
