package microsandbox

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEncodeFrame checks the bytes that are sent to an agent.
func TestEncodeFrame(t *testing.T) {
	for _, c := range []struct {
		id      uint32
		flags   byte
		kind    string
		payload any
		want    string
	}{
		{
			100, flagStart, kindExec, newExecRequest([]string{"/bin/sh", "-c", "exit 3"}, []string{"A=1"}),
			"0000007f0000006402a3617607617471636f72652e657865632e726571756573746170585ea763636d64672f62696e2f7368" +
				"646172677382622d636665786974203363656e768163413d3163637764612f647573657263303a3063747479f467726c" +
				"696d69747381a3687265736f7572636564636f726564736f667400646861726400",
		},
		{
			100, flagStart, kindExec, newExecRequest([]string{"x"}, nil),
			"0000006b0000006402a3617607617471636f72652e657865632e726571756573746170584aa763636d646178646172677380" +
				"63656e768063637764612f647573657263303a3063747479f467726c696d69747381a3687265736f7572636564636f72" +
				"6564736f667400646861726400",
		},
		{
			100, 0, kindStdin,
			streamData{[]byte("in")},
			"000000270000006400a361760761746f636f72652e657865632e737464696e617049a1646461746142696e",
		},
		{
			100, 0, kindStdin,
			streamData{},
			"000000250000006400a361760761746f636f72652e657865632e737464696e617047a1646461746140",
		},
	} {
		frame, err := encodeFrame(c.id, c.flags, c.kind, c.payload)
		if got := hex.EncodeToString(frame); got != c.want || err != nil {
			t.Errorf("encodeFrame(%+v) = %s, %v, want %s", c.payload, got, err, c.want)
		}
	}
}

// TestDecode decodes examples from RFC 8949, and rejects malformed data and data that exceeds the limits.
func TestDecode(t *testing.T) {
	type fields struct {
		A int64   `cbor:"a"`
		B []int64 `cbor:"b"`
		S string  `cbor:"s"`
		D []byte  `cbor:"d"`
	}
	for _, c := range []struct {
		hex  string
		want *fields // nil if it must be rejected
	}{
		{"a0", &fields{}},
		{"a201020304", &fields{}}, // {1: 2, 3: 4}
		{"a26161016162820203", &fields{A: 1, B: []int64{2, 3}}},     // {"a": 1, "b": [2, 3]}
		{"bf61610161629f0203ffff", &fields{A: 1, B: []int64{2, 3}}}, // of indefinite length
		{"a1616120", &fields{A: -1}},
		{"a1616142", nil},                       // a truncated string
		{"a16178f97e00", &fields{}},             // an unknown field: NaN
		{"a16178fb3ff199999999999a", &fields{}}, // an unknown field: 1.1
		{"a1614101", &fields{}},                 // "A" is not "a"
		{"a16173c074323031332d30332d32315432303a30343a30305a", &fields{S: "2013-03-21T20:04:00Z"}},
		{"a161645f42010243030405ff", &fields{D: []byte{1, 2, 3, 4, 5}}}, // in chunks
		{"a161611bffffffffffffffff", nil},                               // exceeds an int64
		{"a1616101616102", nil},                                         // data after the map
		{"a2616101616102", nil},                                         // a duplicate key
		{"a1616161", nil},
		{"a16161ff", nil},
		{"a1616158", nil},
		{"a161615bffffffffffffffff", nil},
		{"a161611c", nil},
		{"01", nil},
		{"a0a0", nil},
		{"", nil},
		{"a16178" + strings.Repeat("81", 40) + "01", nil},
		{"a16178" + strings.Repeat("c1", 40) + "01", nil},
		{"a16162990401" + strings.Repeat("00", 1025), nil}, // an array beyond the limit
	} {
		data, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		var got fields
		err = decode(data, &got)
		if (err != nil) != (c.want == nil) || err != nil && !errors.Is(err, errProtocol) {
			t.Errorf("decode(%.60s) = %+v, %v, want %+v; nil means errProtocol", c.hex, got, err, c.want)
		}
		if c.want != nil {
			if diff := cmp.Diff(*c.want, got); diff != "" {
				t.Errorf("decode(%s) (-want +got):\n%s", c.hex, diff)
			}
		}
	}
}

// FuzzReadFrame checks that no bytes from a box break the decoder, and that its result is bounded by its input.
func FuzzReadFrame(f *testing.F) {
	code := int64(-1)
	for _, payload := range []any{exited{&code}, streamData{[]byte("x")}, startError{"kind", "message"}} {
		frame, err := encodeFrame(7, 1, kindStdout, payload)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame)
	}
	f.Add([]byte{0, 0, 0, 9, 0, 0, 0, 1, 0, 0x9f, 0xbf, 0x7f, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := readFrame(bytes.NewReader(data))
		if err != nil {
			return
		}
		var output streamData
		var failed startError
		for _, into := range []any{&output, &failed, &exited{}} {
			if err := m.decode(into); err != nil && !errors.Is(err, errProtocol) {
				t.Errorf("decode = %v; want errProtocol or nil", err)
			}
		}
		if n := len(output.Data) + len(failed.Kind) + len(failed.Message); n > 2*len(data) {
			t.Errorf("decoded %d bytes from a frame of %d, want at most twice as many", n, len(data))
		}
	})
}
