package ingest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/strictjson"
	"github.com/codefleet/codefleet/internal/text"
)

// This file decodes CloudEvents 1.0 over HTTP. It uses only the SDK's event type and its checks. The SDK's decoder
// compares batch media types as whole strings, leaves binary attributes percent-encoded, does not check the events
// of a batch, panics on some JSON and silently stops at an empty key.

// mode is how a request contains CloudEvents (HTTP protocol binding, section 3).
type mode int

const (
	noEvent mode = iota
	binaryMode
	structuredMode
	batchMode
)

const (
	maxAttribute  = 8 << 10 // bytes in the value of an attribute
	maxAttributes = 64      // attributes of an event
)

// contentMode returns how the request contains events. A media type of CloudEvents takes precedence over the
// header ce-specversion.
func contentMode(h http.Header) (mode, *apierror.Error) {
	ct := h.Get("Content-Type")
	media, params, err := mime.ParseMediaType(ct)
	if ct != "" && err != nil {
		return noEvent, badMediaType(ct, "it is not a media type")
	}
	if cs := params["charset"]; cs != "" && !strings.EqualFold(cs, "utf-8") {
		return noEvent, badMediaType(ct, "the character set must be UTF-8")
	}
	switch {
	case media == "application/cloudevents+json":
		return structuredMode, nil
	case media == "application/cloudevents-batch+json":
		return batchMode, nil
	case strings.HasPrefix(media, "application/cloudevents"):
		return noEvent, badMediaType(ct, "the only supported event format is JSON")
	case h.Get("Ce-Specversion") == "":
		return noEvent, badMediaType(ct, "neither the media type nor a header ce-specversion denotes a CloudEvent")
	}
	return binaryMode, nil
}

// decodeOne decodes a request in binary or structured mode.
func decodeOne(m mode, h http.Header, body []byte) (event.Event, *apierror.Error) {
	if m == binaryMode {
		return decodeBinary(h, body)
	}
	return decodeStructured(body)
}

// decodeBinary decodes an event whose attributes are ce- headers and whose data is the body.
func decodeBinary(h http.Header, body []byte) (event.Event, *apierror.Error) {
	attrs := make(map[string]any)
	for key, values := range h {
		name, ok := strings.CutPrefix(strings.ToLower(key), "ce-")
		if !ok {
			continue
		}
		if len(values) != 1 {
			return event.Event{}, badEvent("", "the header ce-%s occurs %d times", name, len(values))
		}
		v, err := headerValue(values[0])
		if err != nil {
			return event.Event{}, badEvent("", "the header ce-%s: %v", name, err)
		}
		attrs[name] = v
	}
	if ct := h.Get("Content-Type"); ct != "" {
		attrs["datacontenttype"] = ct
	}
	if len(body) > 0 {
		if err := strictjson.Check(body); err != nil {
			return event.Event{}, badJSON(body, err)
		}
	}
	return build(attrs, body)
}

// headerValue decodes an attribute of the HTTP binding (section 3.1.3.2). It removes optional quotes, then decodes
// percent-encoding.
func headerValue(s string) (string, error) {
	s = strings.TrimSpace(s)
	if n := len(s); n >= 2 && s[0] == '"' && s[n-1] == '"' {
		var b strings.Builder
		for i := 1; i < n-1; i++ {
			if s[i] == '\\' && i+1 < n-1 {
				i++
			}
			b.WriteByte(s[i])
		}
		s = b.String()
	}
	return url.PathUnescape(s)
}

// decodeStructured decodes an event in JSON.
func decodeStructured(body []byte) (event.Event, *apierror.Error) {
	fields, e := decodeMembers(body)
	if e != nil {
		return event.Event{}, e
	}
	data, p := structuredData(fields)
	if p != nil {
		return event.Event{}, p
	}
	attrs := make(map[string]any, len(fields))
	for name, raw := range fields {
		if name == "data" || name == "data_base64" {
			continue
		}
		v, err := scalar(raw)
		if err != nil {
			return event.Event{}, badEvent("/"+text.EncodeToken(name), "%v", err)
		}
		if v != nil { // null means absent
			attrs[name] = v
		}
	}
	return build(attrs, data)
}

func structuredData(fields map[string]json.RawMessage) ([]byte, *apierror.Error) {
	data, hasData := fields["data"]
	encoded, hasBase64 := fields["data_base64"]
	switch {
	case hasData && hasBase64:
		return nil, badEvent("/data_base64", "an event has either data or data_base64, not both")
	case !hasBase64:
		return data, nil
	}
	var s string
	if err := json.Unmarshal(encoded, &s); err != nil {
		return nil, badEvent("/data_base64", "it is not a string")
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, badEvent("/data_base64", "it is not base64")
	}
	return b, nil
}

// scalar decodes a context attribute in JSON: a string, a boolean or an integer.
func scalar(raw json.RawMessage) (any, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil, string, bool:
		return v, nil
	case json.Number:
		n, err := strconv.ParseInt(v.String(), 10, 32)
		if err != nil {
			return nil, errors.New("a number must be a 32-bit integer")
		}
		return int32(n), nil
	}
	return nil, errors.New("an attribute must be a string, a boolean or an integer")
}

// decodeBatch splits a batch of at most limit events. The caller decodes each event, so that an invalid one does not
// fail the others.
func decodeBatch(body []byte, limit int) ([]json.RawMessage, *apierror.Error) {
	// Unlike strictjson, encoding/json accepts an event with a name that occurs twice. decodeStructured refuses only
	// that event later.
	members := []json.RawMessage{}
	if !json.Valid(body) || !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) {
		return nil, badJSON(body, strictjson.Decode(body, &members, strictjson.MaxElements[json.RawMessage](limit)))
	}
	d := json.NewDecoder(bytes.NewReader(body))
	_, err := d.Token()
	for err == nil && d.More() {
		if len(members) == limit {
			return nil, apierror.New(errcode.TooLarge, "the batch has more than %d events", limit)
		}
		var member json.RawMessage
		err = d.Decode(&member)
		members = append(members, member)
	}
	if err != nil {
		return nil, badJSON(body, err)
	}
	return members, nil
}

// build returns the event with the given attributes, checked as the specification requires.
func build(attrs map[string]any, data []byte) (event.Event, *apierror.Error) {
	if len(attrs) > maxAttributes {
		return event.Event{}, badEvent("", "the event has %d attributes; the limit is %d", len(attrs), maxAttributes)
	}
	if v := attrs["specversion"]; v != event.CloudEventsVersionV1 {
		return event.Event{}, badEvent("/specversion", "it must be %q", event.CloudEventsVersionV1)
	}
	ev := event.Event{Context: &event.EventContextV1{}}
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		if err := setAttribute(&ev, name, attrs[name]); err != nil {
			return event.Event{}, badEvent("/"+text.EncodeToken(name), "%v", err)
		}
	}
	if err := ev.Validate(); err != nil {
		return event.Event{}, invalidEvent(err)
	}
	if ct := ev.DataContentType(); ct != "" && !isJSON(ct) {
		return event.Event{}, badMediaType(ct,
			"over HTTP, the data of an event must be JSON, or data_base64 without a datacontenttype")
	}
	ev.DataEncoded = data
	return ev, nil
}

func setAttribute(ev *event.Event, name string, value any) error {
	if !isAttributeName(name) {
		return errors.New("the name of an attribute must consist of lower-case letters and digits")
	}
	s, isString := value.(string)
	if isString {
		if err := checkText(s); err != nil {
			return err
		}
		if s == "" && slices.Contains(envelope, name) {
			return errors.New("it is empty: leave it out for its default")
		}
	}
	var err error
	switch name {
	case "specversion":
	case "id":
		err = ev.Context.SetID(s)
	case "source":
		err = ev.Context.SetSource(s)
	case "type":
		err = ev.Context.SetType(s)
	case "subject":
		err = ev.Context.SetSubject(s)
	case "datacontenttype":
		err = ev.Context.SetDataContentType(s)
	case "dataschema":
		err = ev.Context.SetDataSchema(s)
	case "time":
		err = setTime(ev, s)
	default:
		return ev.Context.SetExtension(name, value)
	}
	if err == nil && !isString {
		err = errors.New("it must be a string")
	}
	return err
}

func setTime(ev *event.Event, s string) error {
	t, err := types.ParseTime(s)
	if err != nil {
		return errors.New("it must be a time as in 2006-01-02T15:04:05Z")
	}
	return ev.Context.SetTime(t)
}

func isAttributeName(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// checkText checks the value of a string attribute: its length, and its characters (section 3.1).
func checkText(s string) error {
	switch {
	case len(s) > maxAttribute:
		return fmt.Errorf("it is longer than %d bytes", maxAttribute)
	case !utf8.ValidString(s):
		return errors.New("it is not valid UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		return errors.New("it contains a control character")
	}
	return nil
}

func isJSON(contentType string) bool {
	media, params, err := mime.ParseMediaType(contentType)
	if cs := params["charset"]; err != nil || cs != "" && !strings.EqualFold(cs, "utf-8") {
		return false
	}
	return media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json")
}

func badEvent(path, format string, args ...any) *apierror.Error {
	e := apierror.New(errcode.BadEvent, format, args...)
	e.Path = path
	return e
}

// invalidEvent reports the first attribute, by name, that violates the specification.
func invalidEvent(err error) *apierror.Error {
	broken, ok := errors.AsType[event.ValidationError](err)
	if !ok {
		return badEvent("", "%v", err)
	}
	first := slices.Sorted(maps.Keys(broken))[0]
	return badEvent("/"+first, "%v", broken[first])
}

// decodeJSON decodes a body, as strictjson.Decode does.
func decodeJSON(body []byte, v any, limits ...strictjson.Limit) error {
	if err := strictjson.Decode(body, v, limits...); err != nil {
		return badJSON(body, err)
	}
	return nil
}

// decodeMembers decodes an object, but not the values of its members.
func decodeMembers(body []byte) (members map[string]json.RawMessage, e *apierror.Error) {
	if err := strictjson.Decode(body, &members); err != nil {
		return nil, badJSON(body, err)
	}
	return members, nil
}

// badJSON reports where JSON is invalid. It does not quote values of the body.
func badJSON(body []byte, err error) *apierror.Error {
	e := apierror.New(errcode.BadJSON, "the body is not the expected JSON")
	refused, ok := errors.AsType[*strictjson.Error](err)
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		e.Cause = "the body is empty"
	case !ok:
		e.Cause = err.Error()
	case refused.TooMany:
		e = apierror.New(errcode.TooLarge, "%s", refused.Reason)
		e.Path = refused.Path
	case refused.Offset >= 0:
		line, column := position(body, refused.Offset)
		e.Cause = fmt.Sprintf("line %d, column %d: %s", line, column, refused.Reason)
	default:
		e.Cause, e.Path = refused.Reason, refused.Path
	}
	return e
}

func position(body []byte, offset int64) (line, column int) {
	before := body[:min(offset, int64(len(body)))]
	return bytes.Count(before, []byte("\n")) + 1, len(before) - bytes.LastIndexByte(before, '\n')
}

func badMediaType(ct, why string) *apierror.Error {
	e := apierror.New(errcode.BadMediaType, "the media type %q is not supported here", text.Truncate(ct, 100))
	e.Cause = why
	return e
}
