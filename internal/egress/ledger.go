package egress

import (
	"sync"
)

// What became of an attempt to reach a host.
const (
	Allowed        = "allowed"         // connected, and it ended as its parties wanted
	RefusedHost    = "refused_host"    // not on the list
	RefusedPort    = "refused_port"    // the host is, the port is not
	RefusedAddress = "refused_address" // the name leads to an address that is not the internet's
	RefusedLimit   = "refused_limit"   // this run has used up its connections or bytes
	FailedDNS      = "failed_dns"      // the name has no address
	FailedConnect  = "failed_connect"  // the host did not answer
	CutBytes       = "cut_bytes"       // connected, and cut because this run has used up its bytes
	CutIdle        = "cut_idle"        // connected, and cut because nothing moved for long
	CutSlow        = "cut_slow"        // no request within the time for one
	BadRequest     = "bad_request"     // no request of a proxy
)

// Attempt is what a program tried.
type Attempt struct {
	Host    string // empty: it never said
	Port    int
	Verdict string
	Bytes   int64 // sent and received, as the connection to the host carried them
}

// Others is the host of the entry that sums up what a full ledger has no room for.
const Others = "(others)"

// maxEntries bounds a ledger, but for the sums of others.
const maxEntries = 100

// ledger sums up attempts by host, port and verdict, in the order in which they first came.
type ledger struct {
	mu      sync.Mutex
	entries []Attempt
}

// add counts an attempt.
func (l *ledger) add(a Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sum(a) {
		return
	}
	if len(l.entries) >= maxEntries {
		if a.Host, a.Port = Others, 0; l.sum(a) {
			return
		}
	}
	l.entries = append(l.entries, a)
}

func (l *ledger) sum(a Attempt) bool {
	for i := range l.entries {
		e := &l.entries[i]
		if e.Host == a.Host && e.Port == a.Port && e.Verdict == a.Verdict {
			e.Bytes += a.Bytes
			return true
		}
	}
	return false
}

// Attempts returns what was tried, summed up by host, port and verdict. A connection is in it once it
// has ended.
func (p *Proxy) Attempts() []Attempt {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	return append([]Attempt(nil), p.ledger.entries...)
}
