// Package allowlist is the grammar of hosts that a task may reach, as `network.allow` of a task and
// `network` of a tenant name them. It resolves nothing; its key type is [Pattern].
//
//	example.org         this host, ports 80 and 443
//	*.example.org       every host below it, and not itself
//	example.org:443     this port only
//	93.184.216.34       an address, written out
//	*                   every host
package allowlist

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Ports are those that can be reached at all.
var Ports = []int{80, 443}

// Pattern is one entry of a list.
type Pattern struct {
	Name string // lower case, without a dot at its end; empty: every host
	Wild bool   // hosts below Name, not itself
	Port int    // 0: all of Ports
}

// Parse reads an entry.
func Parse(text string) (Pattern, error) {
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
		return Pattern{}, fmt.Errorf("%q: there is nothing below an address", text)
	}
	return p, nil
}

// splitPort takes a port off the end. An address with colons stands in brackets before a port.
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

// Canonical returns the one form of a host's name or address that patterns are compared with. An
// error means that it is neither.
func Canonical(host string) (string, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return "", errors.New("an address with a zone is of this machine only")
		}
		return addr.Unmap().String(), nil
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if name == "" || len(name) > 253 {
		return "", errors.New("not the name of a host, as example.org")
	}
	for label := range strings.SplitSeq(name, ".") {
		if !isLabel(label) {
			return "", errors.New("not the name of a host, as example.org (names in other scripts: as xn--…)")
		}
	}
	if last := name[strings.LastIndexByte(name, '.')+1:]; last[0] >= '0' && last[0] <= '9' {
		return "", errors.New("an address is written as 93.184.216.34") // not as 0x5d.184.55330, which resolvers take too
	}
	return name, nil
}

func isLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

// Match reports whether a host in its canonical form and a port are within the pattern.
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

// Covers reports whether all that q matches is within p.
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

// String is the pattern as Parse reads it.
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

// ParseAll reads a list, sorted and each entry once. The index of the error's entry comes with it.
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
