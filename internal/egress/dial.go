package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/codefleet/codefleet/internal/allowlist"
)

// addressesTried bounds how many addresses of a name are tried, one after the other.
const addressesTried = 4

// refusal is why a connection was not made.
type refusal struct {
	verdict, text string
}

func (r *refusal) Error() string { return r.text }

// dial is the gate: nothing else in this package connects to anything. Each call is one entry of the
// ledger.
func (p *Proxy) dial(ctx context.Context, target string) (net.Conn, error) {
	host, port, err := split(target)
	a := Attempt{Host: host, Port: port}
	if err != nil {
		return nil, p.refused(a, BadRequest, err.Error())
	}
	if why := p.judge(host, port); why != nil {
		return nil, p.refused(a, why.verdict, why.text)
	}
	if p.dialled.Add(1) > int64(p.opts.Connections) || p.bytes.Load() >= p.opts.Bytes {
		return nil, p.refused(a, RefusedLimit, "this run has used up its connections or bytes")
	}
	ctx, stop := context.WithTimeout(ctx, p.opts.Connect)
	defer stop()
	addrs, why := p.resolve(ctx, host)
	if why != nil {
		return nil, p.refused(a, why.verdict, why.text)
	}
	conn, err := p.first(ctx, addrs, uint16(port))
	if err != nil {
		return nil, p.refused(a, FailedConnect, fmt.Sprintf("connect to %s: %s", host, plain(err)))
	}
	return p.meter(conn, a), nil
}

func (p *Proxy) refused(a Attempt, verdict, text string) error {
	a.Verdict = verdict
	p.ledger.add(a)
	return &refusal{verdict, text}
}

// split reads HOST:PORT of untrusted code. After an error host is what can be shown of it.
func split(target string) (host string, port int, err error) {
	name, digits, err := net.SplitHostPort(target)
	if err != nil {
		return shown(target), 0, fmt.Errorf("%s is not HOST:PORT", shown(target))
	}
	number, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return shown(name), 0, fmt.Errorf("%s is no port", shown(digits))
	}
	host, err = allowlist.Canonical(name)
	if err != nil {
		return shown(name), int(number), fmt.Errorf("%s: %w", shown(name), err)
	}
	return host, int(number), nil
}

// shown is text of untrusted code as it may stand in a status line and in the ledger.
func shown(text string) string {
	const most = 100
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strconv.QuoteToASCII(text)
}

// judge decides by name.
func (p *Proxy) judge(host string, port int) *refusal {
	other := false
	for _, pattern := range p.opts.Allow {
		if pattern.Match(host, port) {
			return nil
		}
		for _, known := range allowlist.Ports {
			other = other || pattern.Match(host, known)
		}
	}
	if other {
		return &refusal{RefusedPort, fmt.Sprintf("port %d of %s cannot be reached, only ports 80 and 443 that network.allow names", port, host)}
	}
	return &refusal{RefusedHost, host + " is not in network.allow"}
}

// resolve returns the addresses of a host, all of them the internet's.
func (p *Proxy) resolve(ctx context.Context, host string) ([]netip.Addr, *refusal) {
	addrs := []netip.Addr{}
	if addr, err := netip.ParseAddr(host); err == nil {
		addrs = append(addrs, addr)
	} else if addrs, err = p.opts.Lookup(ctx, host); err != nil || len(addrs) == 0 {
		return nil, &refusal{FailedDNS, host + " has no address"}
	}
	for _, addr := range addrs {
		if !public(addr) || ours(addr) {
			return nil, &refusal{RefusedAddress, host + " leads to an address that is not of the public internet"}
		}
	}
	return addrs[:min(len(addrs), addressesTried)], nil
}

// first connects to the first address that answers.
func (p *Proxy) first(ctx context.Context, addrs []netip.Addr, port uint16) (net.Conn, error) {
	var all error
	for i, addr := range addrs {
		left := time.Duration(0)
		if deadline, ok := ctx.Deadline(); ok {
			left = time.Until(deadline)
		}
		one, stop := context.WithTimeout(ctx, left/time.Duration(len(addrs)-i))
		conn, err := p.opts.Dial(one, netip.AddrPortFrom(addr.Unmap(), port))
		stop()
		if err == nil {
			return conn, nil
		}
		all = err
	}
	return nil, all
}

// plain is an error of a connection without the addresses that the host uses.
func plain(err error) string {
	var number syscall.Errno
	switch {
	case errors.As(err, &number):
		return number.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "no answer in time"
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Timeout() {
		return "no answer in time"
	}
	return "no connection"
}

// lookup asks the host's resolver for a full name: its search list is not the program's.
func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host+".")
}

func connect(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", to.String())
}
