package egress

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// Public dials hosts on the public internet, for requests that the fleet itself makes to addresses that a tenant chose.
type Public struct {
	// Private are networks that may be dialled although they are not public.
	Private []netip.Prefix
}

const publicTimeout = 10 * time.Second

// DialContext connects to HOST:PORT, as http.Transport calls it. It refuses a host if any of its addresses is not
// allowed. It connects to an address that it has checked.
func (p Public) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	host, digits, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", quoted(address), err)
	}
	port, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: it has no port", quoted(address))
	}
	ctx, stop := context.WithTimeout(ctx, publicTimeout)
	defer stop()
	var addrs []netip.Addr
	if addr, err := netip.ParseAddr(host); err == nil {
		addrs = append(addrs, addr)
	} else if addrs, err = lookup(ctx, host); err != nil || len(addrs) == 0 {
		return nil, &refusal{FailedDNS, quoted(host) + " has no address"}
	}
	for _, addr := range addrs {
		if !p.allowed(addr.Unmap()) {
			return nil, &refusal{RefusedAddress, quoted(host) + " has an address that is not on the public internet"}
		}
	}
	addrs = addrs[:min(len(addrs), maxAddresses)]
	conn, err := connectAny(ctx, connect, addrs, uint16(port))
	if err != nil {
		return nil, &refusal{FailedConnect, fmt.Sprintf("connect to %s: %s", quoted(host), WithoutAddresses(err))}
	}
	return conn, nil
}

// allowed reports whether addr may be dialled: it is in a network of Private, or it is public and not an address of
// this machine.
func (p Public) allowed(addr netip.Addr) bool {
	return slices.ContainsFunc(p.Private, func(n netip.Prefix) bool { return n.Contains(addr) }) ||
		isPublic(addr) && !isLocal(addr)
}
