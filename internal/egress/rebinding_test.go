package egress_test

import (
	"context"
	"encoding/binary"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/egress"
)

// Types of DNS records.
const (
	typeA     = 1
	typeCNAME = 5
	typeAAAA  = 28
)

// nameServer is a hostile name server. Each query of a name for addresses of one kind gets the next response; when the
// responses are used up, the last one is repeated.
type nameServer struct {
	mu sync.Mutex
	// responses are by name and kind, such as "a.example.com A". Each consists of addresses, and >name for an alias.
	responses map[string][]string
	queries   map[string]int // number of queries, by the same key
}

// serve responds on a UDP socket until the test ends, and returns its address.
func (s *nameServer) serve(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for buf := make([]byte, 1500); ; {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(s.respond(slices.Clone(buf[:n])), from)
		}
	})
	t.Cleanup(func() {
		_ = conn.Close()
		serving.Wait()
	})
	return conn.LocalAddr().String()
}

// respond returns the response to a query with one question.
func (s *nameServer) respond(query []byte) []byte {
	var labels []string
	at := 12
	for query[at] != 0 {
		end := at + 1 + int(query[at])
		labels = append(labels, string(query[at+1:end]))
		at = end
	}
	question := query[12 : at+5]
	kind := binary.BigEndian.Uint16(query[at+1:])
	key := strings.Join(labels, ".") + map[uint16]string{typeA: " A", typeAAAA: " AAAA"}[kind]
	s.mu.Lock()
	var response string
	if all := s.responses[key]; len(all) > 0 {
		response = all[min(s.queries[key], len(all)-1)]
	}
	s.queries[key]++
	s.mu.Unlock()
	out := append([]byte{query[0], query[1], 0x84, 0, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
	owner := []byte{0xc0, 12} // the name of the question
	for text := range strings.FieldsSeq(response) {
		out[7]++
		record, data := kind, []byte(nil)
		if alias, ok := strings.CutPrefix(text, ">"); ok {
			record = typeCNAME
			for label := range strings.SplitSeq(alias, ".") {
				data = append(append(data, byte(len(label))), label...)
			}
			data = append(data, 0)
		} else {
			data = netip.MustParseAddr(text).AsSlice()
		}
		out = append(out, owner...)
		out = binary.BigEndian.AppendUint16(out, record)
		out = append(out, 0, 1, 0, 0, 0, 0) // class IN, no caching
		out = binary.BigEndian.AppendUint16(out, uint16(len(data)))
		if out = append(out, data...); record == typeCNAME {
			owner = data
		}
	}
	return out
}

// TestHostileNameServer checks that even with a hostile name server, the proxy connects only to public addresses that
// it has checked.
func TestHostileNameServer(t *testing.T) {
	const public = "93.184.216.34"
	many := strings.Repeat(public+" ", 20) + "127.0.0.1"
	refused, allowed, unknown := "has an address that is not on the public internet", "200 OK: GET ", "has no address"
	for name, c := range map[string]struct {
		a, aaaa []string // successive responses
		want    []string // parts of successive results
		dialled []string
	}{
		"rebinding": {
			a: []string{public, "127.0.0.1"}, want: []string{allowed, refused}, dialled: []string{public},
		},
		"rebinding to v6": {
			a: []string{public, ""}, aaaa: []string{"", "::1"},
			want: []string{allowed, refused}, dialled: []string{public},
		},
		"rebinding after a failure": {
			a:    []string{"8.8.8.8 " + public, "10.0.0.1"},
			want: []string{allowed, refused}, dialled: []string{"8.8.8.8", public},
		},
		"another family": {a: []string{public}, aaaa: []string{"::1"}, want: []string{refused}},
		"mapped":         {aaaa: []string{"::ffff:127.0.0.1"}, want: []string{refused}},
		"mapped private": {aaaa: []string{"::ffff:10.0.0.1"}, want: []string{refused}},
		"NAT64":          {aaaa: []string{"64:ff9b::7f00:1"}, want: []string{refused}},
		"6to4":           {aaaa: []string{"2002:7f00:1::"}, want: []string{refused}},
		"metadata":       {a: []string{"169.254.169.254"}, want: []string{refused}},
		"metadata in v6": {aaaa: []string{"fd00:ec2::254"}, want: []string{refused}},
		"unspecified":    {a: []string{"0.0.0.0"}, want: []string{refused}},
		"the last of 21": {a: []string{many}, want: []string{refused}},
		"an alias":       {a: []string{">localhost 127.0.0.1"}, want: []string{refused}},
		"a public alias": {
			a: []string{">www.example.org " + public}, want: []string{allowed}, dialled: []string{public},
		},
		"no address":    {want: []string{unknown}},
		"only an alias": {a: []string{">localhost"}, want: []string{unknown}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &nameServer{
				queries:   map[string]int{},
				responses: map[string][]string{"h.example.com A": c.a, "h.example.com AAAA": c.aaaa},
			}
			addr := s.serve(t)
			resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "udp", addr)
			}}
			r := start(t, egress.Options{Lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
				return resolver.LookupNetIP(ctx, "ip", host+".")
			}}, "*.example.com")
			r.client.Transport.(*http.Transport).DisableKeepAlives = true // each request has its own connection
			for i, want := range c.want {
				got, err := r.get(t, "https://h.example.com/")
				if err != nil {
					got = err.Error()
				}
				if !strings.Contains(got, want) {
					t.Errorf("GET %d = %q, want %q", i+1, got, want)
				}
				r.client.CloseIdleConnections()
			}
			var dialled []string
			for _, address := range c.dialled {
				dialled = append(dialled, address+":443")
			}
			if diff := cmp.Diff(dialled, r.internet.dialled); diff != "" {
				t.Errorf("connections (-want +got):\n%s", diff)
			}
		})
	}
}
