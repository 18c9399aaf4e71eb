package s3

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
)

// identified is a transport that refuses the status 404 unless the object store sent it. The client takes any 404 for a
// missing object, also that of a proxy which has lost the store: a workspace would count as deleted.
//
// S3 answers with an XML document that has an error code. Stores that send less identify the response by a header. A
// response to HEAD has no body; only EnsureBucket sends such a request, and then tries to create the bucket.
type identified struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t identified) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusNotFound || r.Method == http.MethodHead {
		return resp, err
	}
	if resp.Header.Get("X-Amz-Request-Id") != "" || resp.Header.Get("X-Minio-Error-Code") != "" {
		return resp, nil
	}
	defer resp.Body.Close()
	const limit = 1 << 20 // bytes, as in the client
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	if err != nil {
		return nil, err
	}
	var doc struct {
		XMLName xml.Name `xml:"Error"`
		Code    string   `xml:"Code"`
	}
	if xml.Unmarshal(body, &doc) != nil || doc.Code == "" {
		return nil, fmt.Errorf("the response 404 has no S3 error code, so a proxy sent it, not the object store: "+
			"check what is between this process and the endpoint: %.80q", body)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}
