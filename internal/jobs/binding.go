package jobs

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	"github.com/nats-io/nats.go"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
)

// This file implements the CloudEvents NATS binding (1.0.3-wip). In binary mode, attributes are percent-encoded
// ce- headers and the message body is the data. In structured mode, the body is one JSON document, marked by its
// content type. Header names are case-insensitive. There is no batch mode.

const (
	cePrefix     = "ce-"
	ceStructured = "application/cloudevents"
	maxAttribute = 8 << 10 // bytes of one attribute's value
	// maxAttributes bounds the headers of all attributes, in bytes. The server accepts 64 KiB of headers, of which the
	// fleet needs some for its own.
	maxAttributes = 48 << 10
	ofHeader      = len(": \r\n") // bytes of a header besides its name and its value

	attrPartition = "partitionkey"
)

// decodeNATS reads and validates a CloudEvent from a NATS message in binary or structured mode. The event's data
// may share memory with data. Errors are short and do not quote the message, except for names of attributes: they are
// logged.
func decodeNATS(header nats.Header, data []byte) (event.Event, error) {
	attrs, contentType, err := ceHeaders(header)
	if err != nil {
		return event.Event{}, err
	}
	if media, _, err := mime.ParseMediaType(contentType); err == nil && strings.HasPrefix(media, ceStructured) {
		if media != event.ApplicationCloudEventsJSON {
			return event.Event{}, errors.New("content type of another event format: only " +
				event.ApplicationCloudEventsJSON + " is supported")
		}
		return decodeStructured(data)
	}
	return decodeBinary(attrs, data)
}

// ceHeaders returns the attributes by lower-case name, still percent-encoded, and the content type.
func ceHeaders(header nats.Header) (attrs map[string]string, contentType string, err error) {
	attrs = make(map[string]string, len(header))
	for key, values := range header {
		key = strings.ToLower(key)
		name, isAttr := strings.CutPrefix(key, cePrefix)
		if !isAttr && key != "content-type" || len(values) == 0 {
			continue
		}
		if _, twice := attrs[name]; len(values) > 1 || twice || contentType != "" && !isAttr {
			return nil, "", fmt.Errorf("header %s: set more than once", shortName(key))
		}
		if !isAttr {
			contentType = values[0]
			continue
		}
		attrs[name] = values[0]
	}
	return attrs, contentType, nil
}

// decodeStructured does not use the SDK's decoder, whose errors quote the event, and which panics on some JSON.
func decodeStructured(data []byte) (event.Event, error) {
	ev := event.New(event.CloudEventsVersionV1)
	if !utf8.Valid(data) {
		return ev, errors.New("structured event: not UTF-8")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return ev, fmt.Errorf("structured event: not valid JSON at byte %d", syntax.Offset)
		}
		return ev, errors.New("structured event: not a JSON object")
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if name == "data" || name == "data_base64" {
			continue
		}
		if setMember(&ev, name, members[name]) != nil {
			return ev, badAttribute(name)
		}
	}
	if string(members["specversion"]) != `"1.0"` {
		return ev, badAttribute("specversion")
	}
	if err := setData(&ev, members["data"], members["data_base64"]); err != nil {
		return ev, err
	}
	return ev, checkEvent(ev)
}

// setMember sets an attribute to a value in JSON: a string, a boolean, an integer, or null, which means absent.
func setMember(ev *event.Event, name string, raw json.RawMessage) error {
	var v any
	if err := json.Unmarshal(raw, &v); v == nil {
		return err
	}
	if s, isString := v.(string); isString {
		return setAttribute(ev, name, s)
	}
	if _, isNumber := v.(float64); isNumber {
		n, err := strconv.ParseInt(string(raw), 10, 32)
		if err != nil {
			return err
		}
		v = int32(n)
	}
	return ev.Context.SetExtension(name, v) // refuses the names of the specification's attributes
}

// setData sets the data, unless both members are absent. Data that is not JSON is a string.
func setData(ev *event.Event, data, encoded json.RawMessage) error {
	media, _, _ := mime.ParseMediaType(ev.DataContentType()) // checkEvent refuses an invalid one
	isText := media != "" && media != "application/json" && media != "text/json" && !strings.HasSuffix(media, "+json")
	var s string
	switch {
	case data != nil && encoded != nil:
		return errors.New("structured event: it has both data and data_base64")
	case encoded != nil:
		err := json.Unmarshal(encoded, &s)
		if err == nil {
			ev.DataEncoded, err = base64.StdEncoding.DecodeString(s)
		}
		if err != nil || encoded[0] != '"' {
			return badAttribute("data_base64")
		}
		ev.DataBase64 = true
	case data != nil && isText:
		if err := json.Unmarshal(data, &s); err != nil || data[0] != '"' {
			return errors.New("structured event: data that is not JSON must be a string, or base64 in data_base64")
		}
		ev.DataEncoded = []byte(s)
	default:
		ev.DataEncoded = data
	}
	return nil
}

// badAttribute returns the error for an attribute whose value the SDK refuses.
func badAttribute(name string) error {
	want := map[string]string{
		"specversion": "only 1.0 is supported", "time": "want a time such as 2006-01-02T15:04:05Z",
		"source": "want a URI reference", "dataschema": "want an absolute URI",
		"data_base64": "want base64 in a string",
	}
	return fmt.Errorf("attribute %s: %s", shortName(name), cmp.Or(want[name], "its name or its value is not allowed"))
}

// shortName returns the name of an attribute or of a header for an error.
func shortName(name string) string { return text.Printable(text.Truncate(name, 40)) }

func decodeBinary(attrs map[string]string, data []byte) (event.Event, error) {
	switch attrs["specversion"] {
	case event.CloudEventsVersionV1:
	case "":
		return event.Event{}, errors.New("not a CloudEvent: no header ce-specversion and no content type " +
			event.ApplicationCloudEventsJSON)
	default:
		return event.Event{}, badAttribute("specversion")
	}
	ev := event.New(event.CloudEventsVersionV1)
	for name, encoded := range attrs {
		value := percentDecode(encoded)
		if err := checkText(value); err != nil {
			return ev, fmt.Errorf("attribute %s: %w", shortName(name), err)
		}
		if setAttribute(&ev, name, value) != nil {
			return ev, badAttribute(name)
		}
	}
	if len(data) > 0 {
		ev.DataEncoded = data
	}
	return ev, checkEvent(ev)
}

func setAttribute(ev *event.Event, name, value string) error {
	switch name {
	case "specversion":
	case "id":
		return ev.Context.SetID(value)
	case "source":
		return ev.Context.SetSource(value)
	case "type":
		return ev.Context.SetType(value)
	case "subject":
		return ev.Context.SetSubject(value)
	case "dataschema":
		return ev.Context.SetDataSchema(value)
	case "datacontenttype":
		return ev.Context.SetDataContentType(value)
	case "time":
		t, err := types.ParseTime(value)
		if err != nil {
			return err
		}
		return ev.Context.SetTime(t)
	case "data", "data_base64":
		return errors.New("not an attribute")
	default:
		return ev.Context.SetExtension(name, value)
	}
	return nil
}

// extension returns an extension attribute as text, or "" if it is absent.
func extension(ev event.Event, name string) string {
	s, _ := types.Format(ev.Extensions()[name]) // "" after an error
	return s
}

// partitionKey returns an event's partition key, the attribute of the CloudEvents extension "partitioning", or "" if it
// has none. It returns a *RefusedError for a key that is empty, too long or not a string.
func partitionKey(ev event.Event) (string, error) {
	v, ok := ev.Extensions()[attrPartition]
	if !ok {
		return "", nil
	}
	key, isString := v.(string)
	switch {
	case !isString || key == "":
		return "", refuse(errcode.BadEvent, attrPartition, "it must be a string that is not empty")
	case len(key) > maxKey:
		return "", refuse(errcode.BadEvent, attrPartition, "longer than %d bytes", maxKey)
	}
	return key, nil
}

// checkEvent validates an event with the SDK, and checks its time and the texts of all attributes. It returns the SDK's
// error on one line.
func checkEvent(ev event.Event) error {
	if err := ev.Validate(); err != nil {
		return errors.New(strings.TrimSpace(strings.ReplaceAll(err.Error(), "\n", "; ")))
	}
	attrs := map[string]string{
		"id": ev.ID(), "type": ev.Type(), "source": ev.Source(), "subject": ev.Subject(),
		"datacontenttype": ev.DataContentType(), "dataschema": ev.DataSchema(),
	}
	if t := ev.Time(); !isStorable(t) {
		return fmt.Errorf("attribute time: %s", notStorable)
	}
	for name, v := range ev.Extensions() {
		s, err := types.Format(v)
		if err != nil {
			return badAttribute(name)
		}
		attrs[name] = s
	}
	size := len(timeHeaders)
	for name, s := range attrs {
		if err := checkText(s); err != nil {
			return fmt.Errorf("attribute %s: %w", shortName(name), err)
		}
		size += len(cePrefix) + len(name) + len(percentEncode(s)) + ofHeader
	}
	if size > maxAttributes {
		return fmt.Errorf("all attributes together are longer than %d bytes, as percent-encoded headers", maxAttributes)
	}
	return nil
}

// timeHeaders stands for the headers that every event, or every event with a time, has.
const timeHeaders = "ce-specversion: 1.0\r\nce-time: 2006-01-02T15:04:05.999999999Z\r\n"

// notStorable is the problem of a time that isStorable refuses.
const notStorable = "not in the years 1 to 9999 of UTC"

// isStorable reports whether each part of the fleet can write and read a time, in UTC.
func isStorable(t time.Time) bool {
	year := t.UTC().Year()
	return year >= 1 && year <= 9999
}

// checkText returns an error for a string that is not allowed in a CloudEvent, or that is too long.
func checkText(s string) error {
	if !utf8.ValidString(s) {
		return errors.New("not UTF-8")
	}
	if len(s) > maxAttribute {
		return fmt.Errorf("longer than %d bytes", maxAttribute)
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return errors.New("contains a control character")
	}
	return nil
}

// encodeNATS encodes a CloudEvent in binary mode. The data is not copied.
func encodeNATS(ev event.Event) (nats.Header, []byte, error) {
	if err := checkEvent(ev); err != nil {
		return nil, nil, fmt.Errorf("encode event: %w", err)
	}
	h, err := ceHeadersOf(ev)
	return h, ev.Data(), err
}

// encodeReadable is encodeNATS for an event that a caller submits. It also returns an error for one that decodeNATS
// would not read from its own encoding: it would be accepted here, and refused by each process that gets it.
func encodeReadable(ev event.Event) (nats.Header, []byte, error) {
	if err := checkEvent(ev); err != nil {
		return nil, nil, err
	}
	h, err := ceHeadersOf(ev)
	if err == nil {
		_, err = decodeNATS(h, nil)
	}
	return h, ev.Data(), err
}

// ceHeadersOf returns the headers of a valid event.
func ceHeadersOf(ev event.Event) (nats.Header, error) {
	extensions := ev.Extensions()
	h := make(nats.Header, 8+len(extensions))
	set := func(name, value string) {
		if value != "" {
			h[cePrefix+name] = []string{percentEncode(value)}
		}
	}
	set("specversion", event.CloudEventsVersionV1)
	set("id", ev.ID())
	set("source", ev.Source())
	set("type", ev.Type())
	set("subject", ev.Subject())
	set("datacontenttype", ev.DataContentType())
	set("dataschema", ev.DataSchema())
	if t := ev.Time(); !t.IsZero() {
		set("time", types.FormatTime(t))
	}
	for name, v := range extensions {
		s, err := types.Format(v)
		if err != nil {
			return nil, fmt.Errorf("encode event: %w", badAttribute(name))
		}
		set(name, s)
	}
	return h, nil
}

// percentEncode encodes space, ", % and all bytes outside of printable ASCII.
func percentEncode(s string) string {
	var b []byte
	for i := range len(s) {
		switch {
		case mustEncode(s[i]):
			if b == nil {
				b = append(make([]byte, 0, len(s)+16), s[:i]...)
			}
			b = fmt.Appendf(b, "%%%02X", s[i])
		case b != nil:
			b = append(b, s[i])
		}
	}
	if b == nil {
		return s
	}
	return string(b)
}

func mustEncode(c byte) bool { return c <= 0x20 || c >= 0x7f || c == '"' || c == '%' }

// percentDecode decodes once. It keeps a % that is not followed by two hex digits, since some producers do not
// encode.
func percentDecode(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(v))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
