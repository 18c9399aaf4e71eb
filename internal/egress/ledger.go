package egress

import "sync"

// Verdicts of attempts to reach a host.
const (
	Allowed        = "allowed"         // connected
	RefusedHost    = "refused_host"    // not on the allow-list
	RefusedPort    = "refused_port"    // the host is on the allow-list, the port is not
	RefusedAddress = "refused_address" // the name has an address that is not public
	RefusedLimit   = "refused_limit"   // the run had used up its connections or bytes
	FailedDNS      = "failed_dns"      // the name has no address
	FailedConnect  = "failed_connect"  // the host did not accept the connection
	CutBytes       = "cut_bytes"       // connected, then cut: the run used up its bytes
	CutIdle        = "cut_idle"        // connected, then cut: idle for too long
	CutSlow        = "cut_slow"        // no complete request in time
	BadRequest     = "bad_request"     // not a request to a proxy
)

// Attempt is an attempt of a program to reach a host.
type Attempt struct {
	Host    string // empty: the program sent none
	Port    int
	Verdict string
	Bytes   int64 // sent to and received from the host
}

// Others is the host of the attempts that a full ledger adds up, by verdict.
const Others = "(others)"

const maxAttempts = 100 // in a ledger, beside those of Others

// ledger adds up attempts by host, port and verdict, in the order of their first occurrence.
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

// sum adds the bytes of an attempt to an equal one, and reports whether there is one.
func (l *ledger) sum(a Attempt) bool {
	for i := range l.attempts {
		e := &l.attempts[i]
		if e.Host == a.Host && e.Port == a.Port && e.Verdict == a.Verdict {
			e.Bytes += a.Bytes
			return true
		}
	}
	return false
}

// Attempts returns the attempts so far, added up by host, port and verdict. Connections that have not ended are
// missing.
func (p *Proxy) Attempts() []Attempt {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	return append([]Attempt(nil), p.ledger.attempts...)
}
