package mcp

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestOpenRequests checks that a reader returns a bounded number of requests without a response, in number and in
// bytes, over both kinds of stream.
func TestOpenRequests(t *testing.T) {
	const limit = 10_000
	for name, test := range map[string]struct {
		size, open int // of a request's parameter; how many requests may be open
	}{
		"many": {10, maxRequests}, "large": {limit / 4, 3},
	} {
		for kind, prefix := range map[string]string{"messages": "", "events": "data: "} {
			t.Run(name+" "+kind, func(t *testing.T) {
				in, write := io.Pipe()
				defer in.Close()
				ping := prefix + `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` +
					strings.Repeat("x", test.size) + `"}}` + "\n\n"
				go func() { // ends when in is closed
					for {
						if _, err := io.WriteString(write, ping); err != nil {
							return
						}
					}
				}()
				open := newRequests(limit)
				messages, events := newMessageReader(in, limit, func(string) {}), newEventReader(in, limit)
				messages.requests, events.requests = open, open
				lines := bufio.NewScanner(messages)
				if prefix != "" {
					lines = bufio.NewScanner(events)
				}
				responses := 250 // while the server gets responses, it may send requests
				received := 0
				for lines.Scan() {
					if !strings.Contains(lines.Text(), "ping") {
						continue
					}
					if received++; received <= responses {
						open.sent(strings.NewReader(`{"jsonrpc":"2.0","id":1,"result":{}}` + "\n"))
						open.sent(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"))
					}
				}
				if want := responses + test.open; received != want || !errors.Is(lines.Err(), errTooManyRequests) {
					t.Errorf("%d requests, then %v; want %d and errTooManyRequests", received, lines.Err(), want)
				}
			})
		}
	}
}
