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
	"github.com/codefleet/codefleet/internal/text"
)

// maxAddresses is how many addresses of a name are tried, one after the other.
const maxAddresses = 4

// refusal says why a connection was not made.
type refusal struct {
	verdict, text string
}

func (r *refusal) Error() string { return r.text }

// dial checks a target and connects to it. All connections of programs to hosts are made here. Each call adds one
// attempt to the ledger: at once if it fails, else when the connection is closed.
func (p *Proxy) dial(ctx context.Context, target string) (net.Conn, error) {
	host, port, err := split(target)
	a := Attempt{Host: host, Port: port}
	if err != nil {
		return nil, p.refused(a, BadRequest, err.Error())
	}
	if r := p.checkHost(host, port); r != nil {
		return nil, p.refused(a, r.verdict, r.text)
	}
	if p.dialled.Add(1) > int64(p.opts.Connections) || p.bytes.Load() >= p.opts.Bytes {
		return nil, p.refused(a, RefusedLimit, "the execution has used up its connections or bytes")
	}
	ctx, stop := context.WithTimeout(ctx, p.opts.Connect)
	defer stop()
	addrs, r := p.resolve(ctx, host)
	if r != nil {
		return nil, p.refused(a, r.verdict, r.text)
	}
	conn, err := connectAny(ctx, p.opts.Dial, addrs, uint16(port))
	if err != nil {
		return nil, p.refused(a, FailedConnect, fmt.Sprintf("connect to %s: %s", host, WithoutAddresses(err)))
	}
	return p.newHostConn(conn, a), nil
}

// refused adds to the ledger an attempt that made no connection, and returns its error.
func (p *Proxy) refused(a Attempt, verdict, text string) error {
	a.Verdict = verdict
	p.ledger.add(a)
	return &refusal{verdict, text}
}

// split parses HOST:PORT from an untrusted program. After an error, host is the quoted input, for the ledger.
func split(target string) (host string, port int, err error) {
	name, digits, err := net.SplitHostPort(target)
	if err != nil {
		return quoted(target), 0, fmt.Errorf("%s is not HOST:PORT", quoted(target))
	}
	number, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return quoted(name), 0, fmt.Errorf("%s is not a port", quoted(digits))
	}
	host, err = allowlist.Canonical(name)
	if err != nil {
		return quoted(name), int(number), fmt.Errorf("%s: %w", quoted(name), err)
	}
	return host, int(number), nil
}

// quoted quotes text from an untrusted program for a status line and the ledger.
func quoted(s string) string { return strconv.QuoteToASCII(text.Truncate(s, 100)) }

// checkHost refuses a host or port that is not on the allow-list.
func (p *Proxy) checkHost(host string, port int) *refusal {
	hostAllowed := false
	for _, pattern := range p.opts.Allow {
		if pattern.Match(host, port) {
			return nil
		}
		for _, other := range allowlist.Ports {
			hostAllowed = hostAllowed || pattern.Match(host, other)
		}
	}
	if hostAllowed {
		return &refusal{RefusedPort, fmt.Sprintf(
			"port %d of %s is not in network.allow, which may name ports 80 and 443", port, host)}
	}
	return &refusal{RefusedHost, host + " is not in network.allow"}
}

// resolve returns at most maxAddresses addresses of a host. It refuses a host if any of its addresses is not public or
// belongs to this machine.
func (p *Proxy) resolve(ctx context.Context, host string) ([]netip.Addr, *refusal) {
	addrs := []netip.Addr{}
	if addr, err := netip.ParseAddr(host); err == nil {
		addrs = append(addrs, addr)
	} else if addrs, err = p.opts.Lookup(ctx, host); err != nil || len(addrs) == 0 {
		return nil, &refusal{FailedDNS, host + " has no address"}
	}
	for _, addr := range addrs {
		if !isPublic(addr) || isLocal(addr) {
			return nil, &refusal{RefusedAddress, host + " has an address that is not on the public internet"}
		}
	}
	return addrs[:min(len(addrs), maxAddresses)], nil
}

// dialFunc connects to an address.
type dialFunc = func(ctx context.Context, to netip.AddrPort) (net.Conn, error)

// connectAny connects to the first address that accepts a connection, or returns the error of the last address. ctx
// must have a deadline; the remaining time is divided among the remaining addresses.
func connectAny(ctx context.Context, dial dialFunc, addrs []netip.Addr, port uint16) (conn net.Conn, err error) {
	deadline, _ := ctx.Deadline()
	for i, addr := range addrs {
		limited, stop := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(len(addrs)-i))
		conn, err = dial(limited, netip.AddrPortFrom(addr.Unmap(), port))
		stop()
		if err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// WithoutAddresses returns the text of a connection error without the addresses of this machine.
func WithoutAddresses(err error) string {
	var number syscall.Errno
	switch {
	case errors.As(err, &number):
		return number.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "no response in time"
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Timeout() {
		return "no response in time"
	}
	return "no connection"
}

// lookup resolves a fully qualified name, without the search list of the machine's resolver.
func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host+".")
}

func connect(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", to.String())
}
