package text

import "testing"

func TestHideCredentials(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "",
		"127.0.0.1:4222":                  "127.0.0.1:4222",
		"http://h:1/path":                 "http://h:1/path",
		"http://ann:s3cret@h:1/path":      "http://ann:xxxxx@h:1/path",
		"nats://s3cret@h":                 "nats://xxxxx@h",
		"https://s3cret:@h":               "https://xxxxx@h",
		"http://ann:s3cret pw@h/":         "http://…@h/",
		"http://ann:s3%zzcret@h:1/":       "http://…@h:1/",
		"nats://ann:s3#cret@h":            "nats://…@h",
		"http://ann:s3/cret@h":            "http://…@h",
		"http://ann:12/s3cret@h":          "http://…@h", // a URL with the port 12
		"http://ann:?s3cret@h":            "http://…@h",
		"http://ann:s3@cret@h":            "http://…@h",
		"http://ann:s3\ncret@h":           "http://…@h",
		"http://ann:s3cret@h:port":        "http://…@h:port",
		"http://ann:s3cret@":              "http://ann:xxxxx@",
		"ann:s3cret@h:1":                  "…@h:1",
		"s3cret@h":                        "…@h",
		"ann:s3cret://@h":                 "…@h",
		"nats://ann:a@h,nats://bob:b@i:1": "nats://ann:xxxxx@h,nats://bob:xxxxx@i:1",
		"nats://ann:a@h:1,tls://b":        "nats://ann:xxxxx@h:1,tls://b",
		"nats://ann:s3,cret@h:1":          "nats://ann:xxxxx@h:1",
		"nats://b,ann:s3cret@h:1":         "nats://b,ann:xxxxx@h:1",
		"nats://b:1,nats://ann:s3cret@h":  "nats://…@h",
		"nats://ann:12,s3cret@h":          "nats://ann:xxxxx@h",
		"nats://ann:1/2,s3cret@h":         "nats://…@h",
		"nats://t0ken@h,nats://t1ken@i":   "nats://xxxxx@h,nats://xxxxx@i",
		"nats://ann:a@h:port,nats://b:42": "nats://ann:xxxxx@h:port,nats://b:42",
	} {
		if got := HideCredentials(in); got != want {
			t.Errorf("HideCredentials(%q) = %q, want %q", in, got, want)
		}
	}
}
