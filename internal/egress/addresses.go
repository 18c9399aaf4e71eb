package egress

import (
	"net"
	"net/netip"
	"slices"
)

//go:generate go run ./gen

// refusedHere are addresses that no program may reach although the registries behind notGlobal do not list
// them: multicast, which has registries of its own, and the one public address at which a cloud serves its
// machines (Azure).
var refusedHere = []netip.Prefix{
	netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("168.63.129.16/32"),
}

// unicast6 is the part of IPv6 that is in use for hosts. Outside of it lie multicast and the addresses that embed
// one of IPv4 (NAT64, IPv4-mapped).
var unicast6 = netip.MustParsePrefix("2000::/3")

// isPublic reports whether addr belongs to a host of the public internet. Blocks for special purposes do not, and
// neither do the few globally reachable addresses within such a block, which are anycast services of providers.
func isPublic(addr netip.Addr) bool {
	if !addr.IsValid() || addr.Zone() != "" {
		return false
	}
	addr = addr.Unmap()
	contains := func(p netip.Prefix) bool { return p.Contains(addr) }
	if slices.ContainsFunc(notGlobal, contains) || slices.ContainsFunc(refusedHere, contains) {
		return false
	}
	return addr.Is4() || unicast6.Contains(addr)
}

// isLocal reports whether addr, which may be a public one, is an address of this machine.
func isLocal(addr netip.Addr) bool {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return true // unknown: refuse it
	}
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == addr.Unmap() {
			return true
		}
	}
	return false
}
