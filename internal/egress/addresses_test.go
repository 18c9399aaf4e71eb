package egress

import (
	"net"
	"net/netip"
	"slices"
	"testing"
)

func TestSpecialAddresses(t *testing.T) {
	for _, text := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.255",
		"169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.168.0.1",
		"198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1",
		"255.255.255.255", "168.63.129.16",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1",
		"100::1", "2001::1", "2001:db8::1", "2002:7f00:1::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254",
		"fe80::1", "fec0::1", "ff02::1",
	} {
		if isPublic(netip.MustParseAddr(text)) {
			t.Errorf("isPublic(%s) = true, want false", text)
		}
	}
	for _, text := range []string{
		"8.8.8.8", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1", "2a00:1450::1", "::ffff:8.8.8.8",
	} {
		if !isPublic(netip.MustParseAddr(text)) {
			t.Errorf("isPublic(%s) = false, want true", text)
		}
	}
	if isPublic(netip.Addr{}) || isPublic(netip.MustParseAddr("2606:4700::1%eth0")) {
		t.Error("isPublic of an invalid or scoped address = true, want false")
	}
}

// TestRefusedBlocks checks that every block that was ever refused is still refused, from its first address to its last.
func TestRefusedBlocks(t *testing.T) {
	for _, text := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
		"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
		"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32",
		"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
		"::/3", "4000::/2", "8000::/1", // everything but 2000::/3
	} {
		block := netip.MustParsePrefix(text)
		last := block.Addr().AsSlice()
		for bit := block.Bits(); bit < len(last)*8; bit++ {
			last[bit/8] |= 1 << (7 - bit%8)
		}
		end, _ := netip.AddrFromSlice(last)
		if isPublic(block.Addr()) || isPublic(end) {
			t.Errorf("%s: isPublic(%s) = %v, isPublic(%s) = %v, want false for both", block, block.Addr(),
				isPublic(block.Addr()), end, isPublic(end))
		}
		before, after := block.Addr().Prev(), end.Next()
		for _, neighbour := range []netip.Addr{before, after} {
			inOther := func(p netip.Prefix) bool { return p.Contains(neighbour) }
			want := neighbour.IsValid() && !slices.ContainsFunc(slices.Concat(notGlobal, alsoRefused), inOther) &&
				(neighbour.Is4() || unicast6.Contains(neighbour))
			if neighbour.IsValid() && isPublic(neighbour) != want {
				t.Errorf("next to %s: isPublic(%s) = %v, want %v", block, neighbour, !want, want)
			}
		}
	}
	for _, text := range []string{"192.31.196.1", "192.52.193.1", "192.175.48.1", "2620:4f:8000::1"} {
		if !isPublic(netip.MustParseAddr(text)) {
			t.Errorf("isPublic(%s) = false, want true: the registries list it as globally reachable", text)
		}
	}
}

func TestAddressesOfThisMachine(t *testing.T) {
	list, err := net.InterfaceAddrs()
	if err != nil || len(list) == 0 {
		t.Fatalf("InterfaceAddrs() = %v, %v, want at least one address", list, err)
	}
	for _, a := range list {
		if p := netip.MustParsePrefix(a.String()); !isLocal(p.Addr()) {
			t.Errorf("isLocal(%s) = false, want true", p.Addr())
		}
	}
	if isLocal(netip.MustParseAddr("93.184.216.34")) {
		t.Error("isLocal(93.184.216.34) = true, want false")
	}
}
