package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/codefleet/codefleet/client"
)

// planted are parts of the values that crm/contact returns. They must not occur where the mode of privacy excludes
// them.
var planted = []string{
	"ada.planted", "442079460958", "7946 0958", "4111 1111", "536-90-4399", "GB29NWBK60161331926819", "203.0.113.77",
	"AKIAQ3EGRIVAZ5XWVJ7P",
}

type contact struct {
	Email string `json:"email"`
	Phone int64  `json:"phone"`
	Note  string `json:"note"`
}

// typed are parts of the values that callers write in tasks, checkpoints and other requests.
var typed = []string{"bob.typed", "2125550147"}

// plantedContact returns planted values. Its error contains one, too.
func plantedContact(_ context.Context, q crmQuery) (contact, error) {
	if q.Name == "" {
		return contact{}, errors.New("ada.planted@example.org and 536-90-4399 have no name")
	}
	return contact{Email: "ada.planted@example.org", Phone: 442079460958, Note: "call +44 20 7946 0958\n" +
		"card 4111 1111 1111 1111, ssn 536-90-4399, account GB29NWBK60161331926819, at 203.0.113.77\n" +
		"key AKIAQ3EGRIVAZ5XWVJ7P"}, nil
}

// startCollector receives traces in OTLP over HTTP, and appends them to the file "traces".
func startCollector(ts *testscript.TestScript, _ bool, _ []string) {
	f, err := os.OpenFile(ts.MkAbs("traces"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	ts.Check(err)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(f, r.Body)
	}))
	ts.Defer(func() { server.Close(); f.Close() })
	ts.Setenv("CODEFLEET_TELEMETRY_ENDPOINT", server.URL)
}

// leaks implements the script command
//
//	[!] leaks FILE...    each file contains a planted or typed value (with !: it is not empty and contains none)
func leaks(ts *testscript.TestScript, neg bool, files []string) {
	for _, name := range files {
		text := ts.ReadFile(name)
		var found []string
		for _, v := range slices.Concat(planted, typed) {
			if strings.Contains(text, v) {
				found = append(found, v)
			}
		}
		if neg && (len(found) > 0 || text == "") {
			ts.Fatalf("%s has %d bytes and contains %q, want a text without these values:\n%s",
				name, len(text), found, text)
		}
		if !neg && len(found) == 0 {
			ts.Fatalf("%s contains no value, want one:\n%s", name, text)
		}
	}
}

// fleetMetrics prints the fleet's metrics.
func fleetMetrics(ts *testscript.TestScript, _ bool, _ []string) {
	f, err := client.ReadFleetFile(ts.MkAbs("codefleet/fleet.json"))
	ts.Check(err)
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, f.URL+"/metrics", nil)
	ts.Check(err)
	resp, err := (&http.Client{Transport: bearer(f.Token)}).Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
}

// unpacked returns the content of all zstd frames in data.
func unpacked(data []byte) (content []byte) {
	magic := []byte{0x28, 0xb5, 0x2f, 0xfd}
	for i := bytes.Index(data, magic); i >= 0; i = bytes.Index(data, magic) {
		data = data[i:]
		r, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1))
		if err == nil {
			frame, _ := io.ReadAll(io.LimitReader(r, 1<<20)) // the error is about what follows the frames
			content = append(content, frame...)
			r.Close()
		}
		data = data[len(magic):]
	}
	return content
}

// places implements the script command
//
//	places PLACE...    values are stored in some of the places, and in no other one
//	! places           no value that a tool returned is stored anywhere
//
// A place is a stream, or the beginning of a path, of the fleet's data. The queue stores messages as they are, so that
// a search in its files finds them. Workspaces are compressed.
func places(ts *testscript.TestScript, neg bool, permitted []string) {
	values, found, wrong := slices.Concat(planted, typed), 0, 0
	if neg {
		values = planted
	}
	root := ts.MkAbs("codefleet")
	ts.Check(filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		data = append(data, unpacked(data)...)
		place := strings.TrimPrefix(strings.TrimPrefix(path, root+"/"), "nats/jetstream/FLEET/streams/")
		for _, v := range values {
			if !bytes.Contains(data, []byte(v)) {
				continue
			}
			found++
			if !slices.ContainsFunc(permitted, func(p string) bool { return strings.HasPrefix(place, p+"/") }) {
				wrong++
				ts.Logf("%s contains %q", place, v)
			}
		}
		return err
	}))
	if wrong > 0 || !neg && found == 0 {
		ts.Fatalf("%d values are in the data, and %d of them not in %q", found, wrong, permitted)
	}
}
