package jobs

import "testing"

func TestRedacted(t *testing.T) {
	for in, want := range map[string]string{
		"nats://127.0.0.1:4222":                "nats://127.0.0.1:4222",
		"nats://ann:s3cret@a:4222,tls://b":     "nats://ann:xxxxx@a:4222,tls://b",
		"nats://ann:s3,cret@a:4222":            "nats://ann:xxxxx@a:4222",
		"nats://b,ann:s3cret@a:4222":           "nats://b,…@a:4222",
		"nats://s3cret@a:4222":                 "nats://xxxxx@a:4222",
		"nats://ann:s3cret@a:port,nats://b:42": "nats://ann:xxxxx@a:port,nats://b:42",
		"127.0.0.1:4222":                       "127.0.0.1:4222",
		"s3cret@a:4222":                        "…@a:4222",
		"":                                     "",
	} {
		if got := redacted(in); got != want {
			t.Errorf("redacted(%q) = %q, want %q", in, got, want)
		}
	}
}
