package broker_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/codefleet/codefleet/internal/tools/broker"
)

func TestPreview(t *testing.T) {
	long := strings.Repeat("ä", 1000)
	var late strings.Builder // 19 members whose names come after the name …
	for c := range 19 {
		fmt.Fprintf(&late, `,"～%c":1`, 'a'+c)
	}
	for args, want := range map[string]string{
		`{"id":7,"deep":{"password":"hunter2","apiKey":"k","note":"x"}}`: `{"deep":{"apiKey":"(hidden)","note":"x",` +
			`"password":"(hidden)"},"id":7}`,
		`{"token":null,"tokens_left":3,"n":1e400}`: `{"n":1e400,"token":null,"tokens_left":3}`,
		`{"path":"a` + "\\u202E" + `b"}`:           `{"path":"a<U+202E>b"}`,
		`{"html":"<b>&"}`:                          `{"html":"<b>&"}`,
		fmt.Sprintf(`{"text":%q}`, long): fmt.Sprintf(`{"text":"%s… (2000 bytes)"}`,
			strings.Repeat("ä", 200)),
		`[` + strings.Repeat(`1,`, 29) + `1]`:                                           `[` + strings.Repeat(`1,`, 20) + `"(10 more)"]`,
		`{"a":{"a":{"a":{"a":{"a":{"a":{"a":1}}}}}}}`:                                   `{"a":{"a":{"a":{"a":{"a":{"a":"(object of size 1)"}}}}}}`,
		`{"n":` + strings.Repeat("1", 1000) + `}`:                                       `{"n":"` + strings.Repeat("1", 40) + `… (1000 digits)"}`,
		`{"text":"key ghp_16C7e42F292c6912E7710c838347Ae178B4a, AKIAIOSFODNN7EXAMPLE"}`: `{"text":"key (hidden), (hidden)"}`,
		`{"headers":["Authorization: Bearer abc.def"],"url":"postgres://me:pw3@db:5432/x?password=pw4&a=1"}`: `{"headers":[` +
			`"Authorization: Bearer (hidden)"],"url":"postgres://me:(hidden)@db:5432/x?password=(hidden)&a=1"}`,
		`{"body":"{\"password\": \"hunter2\", \"a\": 1}"}`:           `{"body":"{\"password\": \"(hidden)\", \"a\": 1}"}`,
		`{"body":"{\"password\": \"my secret phrase\", \"a\": 1}"}`:  `{"body":"{\"password\": \"(hidden)\", \"a\": 1}"}`,
		`{"cmd":"PGPASSWORD=P@ssw0rd psql"}`:                         `{"cmd":"PGPASSWORD=(hidden) psql"}`,
		`{"cmd":"export SECRET='it is, mine' x"}`:                    `{"cmd":"export SECRET='(hidden)' x"}`,
		`{"pem":"-----BEGIN RSA PRIVATE KEY-----\nMIIE"}`:            `{"pem":"(hidden)"}`,
		`{"to":"jane.doe@example.org","card":"4242-4242 4242 4242"}`: `{"card":"(card …4242)","to":"j…@example.org"}`,
		`{"card":4242424242424242,"when":1732300000000,"id":4242424242424243}`: `{"card":"(card …4242)",` +
			`"id":4242424242424243,"when":1732300000000}`,
		`{"jane@example.org":1,"t":"eyJhbGciOiJIUzI1NiJ9.e30.c2ln"}`: `{"j…@example.org":1,"t":"(hidden)"}`,
		`{"al@x.com":1,"an@x.com":2,"ash@x.com":3,"a…@x.com (2)":4}`: `{"a…@x.com":1,"a…@x.com (2)":2,` +
			`"a…@x.com (2) (2)":4,"a…@x.com (3)":3}`,
		`{"…":"z"` + late.String() + `,"～~":1}`: `{"…":"z","… (2)":"(1 more)"` + late.String() + `}`,
		`{"q":"SELECT * FROM tokens WHERE secret IS NULL","at":"12:30, 5 @ 3"}`: `{"at":"12:30, 5 @ 3",` +
			`"q":"SELECT * FROM tokens WHERE secret IS NULL"}`,
		`{"x":"` + strings.Repeat("x", 380) + ` ghp_16C7e42F292c6912E7710c838347Ae178B4a"}`: `{"x":"` +
			strings.Repeat("x", 380) + ` (hidden)"}`,
		`nonsense`: `"(8 bytes of invalid JSON)"`,
		`{"` + strings.Repeat("k", 1000) + `":"` + `"}`: `{"` + strings.Repeat("k", 400) + `… (1000 bytes)":""}`,
	} {
		if got := string(broker.Preview(json.RawMessage(args))); got != want {
			t.Errorf("Preview(%.100s)\n got %s\nwant %s", args, got, want)
		}
	}
}

// A secret is hidden as the value of a field, and in a text after its name.
func TestPreviewHidesNamedSecrets(t *testing.T) {
	for name, secret := range map[string]bool{
		"password": true, "db_passwd": true, "PWD": true, "passphrase": true, "passcode": true, "pass": true,
		"client_secret": true, "secrets": true, "secret_key": true, "secretKey": true, "SECRET-KEY": true,
		"access_key": true, "accessKey": true, "aws_secret_access_key": true, "account_key": true,
		"api_key": true, "x-api-key": true, "apikeys": true, "private_key": true, "signingKey": true,
		"encryption_key": true, "ssh_key": true, "auth_token": true, "credentials": true, "Authorization": true,
		"set-cookie": true,
		"key":        false, "primary_key": false, "sort_key": false, "keyboard": false, "secretary": false,
		"passed": false, "token_count": false, "monkey": false,
	} {
		value := "fw0BX"
		if secret {
			value = "(hidden)"
		}
		args := fmt.Sprintf(`{"%s":"fw0BX","z":"with %[1]s=fw0BX, or %[1]s: 'fw0BX'"}`, name)
		want := fmt.Sprintf(`{"%s":"%s","z":"with %[1]s=%[2]s, or %[1]s: '%[2]s'"}`, name, value)
		if got := string(broker.Preview(json.RawMessage(args))); got != want {
			t.Errorf("Preview(%s)\n got %s\nwant %s", args, got, want)
		}
	}
}

func FuzzPreview(f *testing.F) {
	f.Add(`{"a":["` + strings.Repeat("x", 9000) + `",{"password":"p"}]}`)
	f.Add(`{"` + strings.Repeat(`a":{"`, 2000))
	f.Fuzz(func(t *testing.T, args string) {
		got := broker.Preview(json.RawMessage(args))
		if len(got) > 4<<10 || !json.Valid(got) {
			t.Errorf("Preview(%q) is %d bytes: %.200s; want at most 4 KiB of JSON", args, len(got), got)
		}
		if strings.ContainsAny(string(got), "\u202e\u200b") {
			t.Errorf("Preview(%q) = %q, want no hidden character", args, got)
		}
	})
}
