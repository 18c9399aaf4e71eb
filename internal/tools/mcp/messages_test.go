package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

func TestMessageReader(t *testing.T) {
	const limit = 100
	const a = `{"jsonrpc":"2.0","method":"a"}`
	long := strings.Repeat("x", 200000)
	for _, test := range []struct{ in, want, invalid string }{
		{a + "\n" + a, a + "\n" + a + "\n", ""},
		{"[" + a + ", " + a + "] \n", a + "\n" + a + "\n", ""},
		{"[]\n" + a + " \r\n", a + "\n", ""},
		{"{}\n" + a + "\n", a + "\n", "{}"},
		{"\n\nhello\n" + a + "\n{oops\n", a + "\n", "hello,{oops"},
		{
			`{"jsonrpc":"2.0","id":5,"result":{"x":"` + long + `"}}` + "\n" + a + "\n",
			`{"jsonrpc":"2.0","id":5,"error":{"code":-32099,` +
				`"message":"the response is 200043 bytes; the limit is 100"}}` + "\n" + a + "\n",
			"",
		},
		{
			`{"result":{"x":"` + long + `"},"jsonrpc":"2.0","id":"a-1"}` + "\n" + a + "\n",
			`{"jsonrpc":"2.0","id":"a-1","error":{"code":-32099,` +
				`"message":"the response is 200047 bytes; the limit is 100"}}` + "\n" + a + "\n",
			"",
		},
		{
			`{"jsonrpc":"2.0","id":6,"result":{"x":NaN}}` + "\n",
			`{"jsonrpc":"2.0","id":6,"error":{"code":-32098,` +
				`"message":"the response is not valid JSON: invalid character 'N'` +
				` looking for beginning of value, near id\":6,\"result\":{\"x\":NaN}}"}}` + "\n",
			`{"jsonrpc":"2.0","id":6,"result":{"x":NaN}}`,
		},
		{
			`{"jsonrpc":"2.0","id":7,"method":"x","params":NaN}` + "\n" + a + "\n", a + "\n",
			`{"jsonrpc":"2.0","id":7,"method":"x","params":NaN}`,
		},
		{`{"result":NaN,"id":"00` + "\x01" + `"}` + "\n" + a + "\n", a + "\n", `{"result":NaN,"id":"00` + "\x01" + `"}`},
	} {
		var invalid []string
		l := newMessageReader(io.NopCloser(strings.NewReader(test.in)), limit,
			func(line string) { invalid = append(invalid, line) })
		got, err := io.ReadAll(l)
		if err != nil || string(got) != test.want || strings.Join(invalid, ",") != test.invalid {
			t.Errorf("%.40q: %.200q, %v, invalid %q, want %q", test.in, got, err, invalid, test.want)
		}
	}
	l := newMessageReader(io.NopCloser(strings.NewReader(`{"x":"`+long+`","id":"}`+"\n")), limit, func(string) {})
	if got, err := io.ReadAll(l); err == nil {
		t.Errorf("Read of a long line without an id = %.100q, want an error", got)
	}
}

// Whatever the input, messageReader returns only lines of valid JSON within the limit.
func FuzzMessageReader(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":5,"result":1}` + "\nx\n"))
	f.Add([]byte(`{"jsonrpc":"2.0","id":5,"result":NaN}` + "\n"))
	f.Add([]byte(`{"result":"` + strings.Repeat("x", 300) + `","id":7}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := io.ReadAll(newMessageReader(io.NopCloser(bytes.NewReader(in)), 500, func(string) {}))
		if err != nil {
			return
		}
		lines := bufio.NewScanner(bytes.NewReader(out))
		for lines.Scan() {
			if line := bytes.TrimSpace(lines.Bytes()); len(line) > 501 || !json.Valid(line) {
				t.Errorf("Read returned the line %q, want JSON of at most 501 bytes", line)
			}
		}
	})
}
