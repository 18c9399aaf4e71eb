// Package allowlist parses and matches patterns of the hosts that a task may reach: `network.allow` of a task, and
// `network` of a tenant. It does not resolve names. The key type is [Pattern].
//
//	example.org         this host, ports 80 and 443
//	*.example.org       every host below it, but not the host itself
//	example.org:443     this port only
//	93.184.216.34       an address
//	*                   every host
package allowlist

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Ports are the only ports that a task can reach.
var Ports = []int{80, 443}

// Pattern is one element of an allow-list.
type Pattern struct {
	Name string // lower case, without a trailing dot; empty for every host
	Wild bool   // matches hosts below Name, but not Name itself
	Port int    // 0 for all of Ports
}

// Parse parses a pattern.
func Parse(text string) (Pattern, error) {
	if host, isURL := HostOfURL(text); isURL {
		return Pattern{}, fmt.Errorf("%q is a URL: want a host, such as %s", text, cmp.Or(host, "example.org"))
	}
	if host, _, hasPath := strings.Cut(text, "/"); hasPath {
		return Pattern{}, fmt.Errorf("%q has a path: want a host, such as %s", text, cmp.Or(host, "example.org"))
	}
	name, port, err := splitPort(text)
	if err != nil {
		return Pattern{}, fmt.Errorf("%q: %w", text, err)
	}
	p := Pattern{Port: port}
	if name == "*" {
		return p, nil
	}
	name, p.Wild = strings.CutPrefix(name, "*.")
	if p.Name, err = Canonical(name); err != nil {
		return Pattern{}, fmt.Errorf("%q: %w", text, err)
	}
	if _, err := netip.ParseAddr(p.Name); err == nil && p.Wild {
		return Pattern{}, fmt.Errorf("%q: an address has no hosts below it", text)
	}
	return p, nil
}

// HostOfURL returns the host of a URL, with its port if it has one, and whether text is a URL.
func HostOfURL(text string) (host string, isURL bool) {
	_, rest, isURL := strings.Cut(text, "://")
	host, _, _ = strings.Cut(rest, "/")
	return host, isURL
}

// splitPort splits off the port. An IPv6 address must be in brackets if a port follows.
func splitPort(text string) (name string, port int, err error) {
	if _, err := netip.ParseAddr(text); err == nil {
		return text, 0, nil
	}
	name, digits, found := text, "", false
	if i := strings.LastIndexByte(text, ':'); i >= 0 && !strings.HasSuffix(text, "]") {
		name, digits, found = text[:i], text[i+1:], true
	}
	if inner, ok := strings.CutPrefix(name, "["); ok {
		name = strings.TrimSuffix(inner, "]")
	}
	if !found {
		return name, 0, nil
	}
	port, err = strconv.Atoi(digits)
	if err != nil || !slices.Contains(Ports, port) {
		return "", 0, errors.New("only ports 80 and 443 can be reached")
	}
	return name, port, nil
}

// Canonical returns the canonical form of a host name or address, which Match requires. The error says why host is
// neither.
func Canonical(host string) (string, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return "", errors.New("an address with a zone is local to this machine")
		}
		return addr.Unmap().String(), nil
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if name == "" || len(name) > 253 {
		return "", errors.New("not a host name (want one like example.org)")
	}
	for label := range strings.SplitSeq(name, ".") {
		if !isLabel(label) {
			if strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII }) {
				return "", errors.New("not a host name (write names in other scripts in their xn--… form)")
			}
			return "", errors.New("not a host name (want one like example.org)")
		}
	}
	if last := name[strings.LastIndexByte(name, '.')+1:]; last[0] >= '0' && last[0] <= '9' {
		// Resolvers also accept other forms of an address, such as 0x5d.184.55330; these are rejected.
		return "", errors.New("write an address as 93.184.216.34")
	}
	return name, nil
}

func isLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

// Match reports whether the pattern allows a port of a host, given in its canonical form.
func (p Pattern) Match(host string, port int) bool {
	if !slices.Contains(Ports, port) || p.Port != 0 && p.Port != port {
		return false
	}
	switch {
	case p.Name == "":
		return true
	case p.Wild:
		return strings.HasSuffix(host, "."+p.Name)
	}
	return host == p.Name
}

// Covers reports whether p matches everything that q matches.
func (p Pattern) Covers(q Pattern) bool {
	if p.Port != 0 && p.Port != q.Port {
		return false
	}
	switch {
	case p.Name == "":
		return true
	case q.Name == "":
		return false
	case p.Wild:
		return strings.HasSuffix(q.Name, "."+p.Name) || q.Wild && q.Name == p.Name
	}
	return !q.Wild && q.Name == p.Name
}

// String returns the pattern in the form that Parse accepts.
func (p Pattern) String() string {
	name := p.Name
	switch {
	case name == "":
		name = "*"
	case p.Wild:
		name = "*." + name
	case strings.Contains(name, ":"):
		name = "[" + name + "]"
	}
	if p.Port == 0 {
		return name
	}
	return name + ":" + strconv.Itoa(p.Port)
}

// ParseAll parses a list and returns it sorted and without duplicates. After an error, bad is the index of the invalid
// text.
func ParseAll(list []string) (patterns []Pattern, bad int, err error) {
	for i, text := range list {
		p, err := Parse(text)
		if err != nil {
			return nil, i, err
		}
		patterns = append(patterns, p)
	}
	slices.SortFunc(patterns, func(a, b Pattern) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(patterns), 0, nil
}
