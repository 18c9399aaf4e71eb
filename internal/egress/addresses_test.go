package egress

import (
	"net"
	"net/netip"
	"testing"
)

func TestSpecialAddresses(t *testing.T) {
	for _, text := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.255", "169.254.169.254",
		"169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.168.0.1", "198.18.0.1", "198.19.255.255",
		"198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "168.63.129.16",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1", "2001::1",
		"2001:db8::1", "2002:7f00:1::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1",
	} {
		if public(netip.MustParseAddr(text)) {
			t.Errorf("public(%s) = true", text)
		}
	}
	for _, text := range []string{"8.8.8.8", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1", "2a00:1450::1", "::ffff:8.8.8.8"} {
		if !public(netip.MustParseAddr(text)) {
			t.Errorf("public(%s) = false", text)
		}
	}
	if public(netip.Addr{}) || public(netip.MustParseAddr("2606:4700::1%eth0")) {
		t.Error("what is no address of the internet is public")
	}
}

func TestAddressesOfThisMachine(t *testing.T) {
	list, err := net.InterfaceAddrs()
	if err != nil || len(list) == 0 {
		t.Fatal(list, err)
	}
	for _, a := range list {
		if p := netip.MustParsePrefix(a.String()); !ours(p.Addr()) {
			t.Errorf("ours(%s) = false", p.Addr())
		}
	}
	if ours(netip.MustParseAddr("93.184.216.34")) {
		t.Error("ours(93.184.216.34) = true")
	}
}
