package egress

import (
	"slices"
	"sync"
)

// Verdicts of attempts to reach a host.
const (
	Allowed        = "allowed"         // connected
	RefusedHost    = "refused_host"    // not on the allow-list
	RefusedPort    = "refused_port"    // the host is on the allow-list, but with other ports
	RefusedAddress = "refused_address" // the name has an address that is not public, or is this machine's
	RefusedLimit   = "refused_limit"   // the execution has used up its connections or bytes
	FailedDNS      = "failed_dns"      // the name has no address
	FailedConnect  = "failed_connect"  // the host did not accept the connection
	CutBytes       = "cut_bytes"       // connected, then cut because the execution used up its bytes
	CutIdle        = "cut_idle"        // connected, then cut because it was idle for too long
	CutSlow        = "cut_slow"        // no complete request in time
	BadRequest     = "bad_request"     // not a valid request to a proxy
)

// Attempt is an attempt of a program to reach a host.
type Attempt struct {
	Host    string // quoted if it is invalid; empty if the program sent none
	Port    int
	Verdict string
	Bytes   int64 // sent to and received from the host
}

// Others is the host under which further attempts are added up, by verdict, once the ledger is full.
const Others = "(others)"

// maxAttempts is how many attempts a ledger keeps, without those under Others.
const maxAttempts = 100

// ledger adds up attempts by host, port and verdict, in order of first occurrence.
type ledger struct {
	mu       sync.Mutex
	attempts []Attempt
}

// add adds an attempt.
func (l *ledger) add(a Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sum(a) {
		return
	}
	if len(l.attempts) >= maxAttempts {
		if a.Host, a.Port = Others, 0; l.sum(a) {
			return
		}
	}
	l.attempts = append(l.attempts, a)
}

// sum adds the bytes of an attempt to an earlier attempt with the same host, port and verdict. It returns false if
// no such attempt exists.
func (l *ledger) sum(a Attempt) bool {
	i := slices.IndexFunc(l.attempts, func(b Attempt) bool {
		return b.Host == a.Host && b.Port == a.Port && b.Verdict == a.Verdict
	})
	if i >= 0 {
		l.attempts[i].Bytes += a.Bytes
	}
	return i >= 0
}

// Attempts returns the attempts so far, added up by host, port and verdict. It does not include open connections.
func (p *Proxy) Attempts() []Attempt {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	return slices.Clone(p.ledger.attempts)
}
