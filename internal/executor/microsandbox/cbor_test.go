package microsandbox

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCBOR(t *testing.T) {
	written := appendMap(nil,
		field{"small", uint64(23)}, field{"byte", uint64(24)}, field{"word", uint64(1 << 8)}, field{"long", uint64(1 << 20)},
		field{"huge", uint64(1 << 40)}, field{"minus", int64(-500)}, field{"yes", true}, field{"no", false}, field{"text", "ü"},
		field{"bytes", []byte{0, 255}}, field{"list", []string{"a", "b"}}, field{"maps", [][]field{{{"k", "v"}}}},
	)
	want := map[string]any{
		"small": int64(23), "byte": int64(24), "word": int64(256), "long": int64(1 << 20), "huge": int64(1 << 40), "minus": int64(-500),
		"yes": nil, "no": nil, "text": "ü", "bytes": []byte{0, 255}, "list": []any{"a", "b"}, "maps": []any{map[string]any{"k": "v"}},
	}
	got, err := readMap(written)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("readMap = %v (-want +got):\n%s", err, diff)
	}
}

// What RFC 8949 gives as examples, and what is none.
func TestCBORRead(t *testing.T) {
	for _, c := range []struct {
		hex  string
		want map[string]any // nil: refused
	}{
		{"a0", map[string]any{}},
		{"a201020304", map[string]any{}}, // {1: 2, 3: 4}
		{"a26161016162820203", map[string]any{"a": int64(1), "b": []any{int64(2), int64(3)}}}, // {"a": 1, "b": [2, 3]}
		{"bf61610161629f0203ffff", map[string]any{"a": int64(1), "b": []any{int64(2), int64(3)}}},
		{"a1616120", map[string]any{"a": int64(-1)}},
		{"a16161f97e00", map[string]any{"a": nil}},                                                          // NaN
		{"a16161fb3ff199999999999a", map[string]any{"a": nil}},                                              // 1.1
		{"a16161c074323031332d30332d32315432303a30343a30305a", map[string]any{"a": "2013-03-21T20:04:00Z"}}, // a tag
		{"a161611bffffffffffffffff", nil},                                                                   // a number too large
		{"a161615f42010243030405ff", nil},                                                                   // bytes in parts
		{"a16161", nil},
		{"a16161ff", nil},
		{"a1616158", nil},
		{"a161615bffffffffffffffff", nil},
		{"a161611c", nil},
		{"01", nil},
		{"a0a0", nil},
		{"", nil},
		{"a16161" + strings.Repeat("81", 40) + "01", nil},
		{"a16161" + strings.Repeat("c1", 40) + "01", nil},
	} {
		data, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readMap(data)
		if (err != nil) != (c.want == nil) || err != nil && !errors.Is(err, errProtocol) {
			t.Errorf("readMap(%s) = %v, %v", c.hex, got, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" && c.want != nil {
			t.Errorf("readMap(%s) (-want +got):\n%s", c.hex, diff)
		}
	}
}

// FuzzReadFrame: what a box sends does not break the reader, and takes no more than it is long.
func FuzzReadFrame(f *testing.F) {
	for _, fields := range [][]field{nil, {{"code", int64(-1)}}, {{"data", []byte("x")}}} {
		frame, err := encodeFrame(7, 1, "core.exec.stdout", fields...)
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
		fields, err := m.fields()
		if err != nil {
			return
		}
		if len(fields) > len(data) {
			t.Errorf("%d fields from %d bytes", len(fields), len(data))
		}
	})
}
