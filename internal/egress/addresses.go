package egress

import (
	"net"
	"net/netip"
)

// refused are the addresses that no program reaches, whatever a list says: those that the IANA
// special-purpose registries (RFC 6890 and its updates) do not call globally reachable, multicast, and
// the one public address at which a cloud answers its machines (Azure's 168.63.129.16). Of IPv6 only
// 2000::/3 is in use for hosts; what embeds an IPv4 address (6to4, Teredo, NAT64) is refused with it.
var refused = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

var global6 = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		list[i] = netip.MustParsePrefix(t)
	}
	return list
}

// public reports whether an address is one of the internet's hosts.
func public(addr netip.Addr) bool {
	if !addr.IsValid() || addr.Zone() != "" {
		return false
	}
	addr = addr.Unmap()
	for _, p := range refused {
		if p.Contains(addr) {
			return false
		}
	}
	return addr.Is4() || global6.Contains(addr)
}

// ours reports whether an address is one of this machine's, which may be a public one.
func ours(addr netip.Addr) bool {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return true // then nobody can tell
	}
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == addr.Unmap() {
			return true
		}
	}
	return false
}
