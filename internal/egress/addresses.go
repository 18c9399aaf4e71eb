package egress

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/allowlist"
)

//go:generate go run ./gen

// alsoRefused are blocks that no program may reach although the registries behind notGlobal do not list them:
// multicast, which has its own registries, and the public address at which Azure serves its machines.
var alsoRefused = []netip.Prefix{
	netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("168.63.129.16/32"),
}

// unicast6 is the part of IPv6 that is used for hosts. Outside of it are multicast and the addresses that embed an
// IPv4 address (NAT64, IPv4-mapped).
var unicast6 = netip.MustParsePrefix("2000::/3")

// isPublic reports whether addr may belong to a host on the public internet. Addresses in the blocks of notGlobal do
// not, not even the few in them that are globally reachable: those are anycast services and identifiers, not hosts that
// programs need.
func isPublic(addr netip.Addr) bool {
	if !addr.IsValid() || addr.Zone() != "" {
		return false
	}
	addr = addr.Unmap()
	contains := func(p netip.Prefix) bool { return p.Contains(addr) }
	if slices.ContainsFunc(notGlobal, contains) || slices.ContainsFunc(alsoRefused, contains) {
		return false
	}
	return addr.Is4() || unicast6.Contains(addr)
}

// NeverReached reports whether an allow-list's pattern is an address that no program can reach, or localhost.
func NeverReached(p allowlist.Pattern) bool {
	if p.Name == "localhost" || strings.HasSuffix(p.Name, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(p.Name)
	return err == nil && !isPublic(addr)
}

// isLocal reports whether addr, which may be public, is an address of this machine, or whether that is unknown.
func isLocal(addr netip.Addr) bool {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return true // refuse what cannot be checked
	}
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == addr.Unmap() {
			return true
		}
	}
	return false
}
