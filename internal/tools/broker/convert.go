package broker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
)

// convert converts a tool's result for the program: to its validated structured value, or else to its
// text, which is decoded if it is a JSON object or list. Images, audio and large values become files.
func convert(cfg Config) layer {
	return func(ctx context.Context, c Call, next handler) (Result, error) {
		r, err := next(ctx, c)
		if err != nil {
			return r, err
		}
		if r.raw.IsError {
			return Result{}, toolError(ctx, cfg, c, *r.raw)
		}
		s := &spiller{cfg: cfg, call: c}
		v, err := value(ctx, s, *r.raw)
		if err == nil {
			v, err = tokenise(ctx, cfg, c, v)
		}
		if err == nil && len(v) > cfg.SpillAt {
			v, err = s.spill(ctx, "all.json", "application/json", v)
		}
		if err != nil {
			return Result{}, markSent(asError(ctx, c, err))
		}
		return Result{Value: v, files: s.files}, nil
	}
}

// maxErrorText bounds a tool's text, and its structured content, in an error message, in bytes.
const maxErrorText = 4000

// toolError converts a tool's error result: its text, and its structured content if the text does not contain it.
func toolError(ctx context.Context, cfg Config, c Call, res tools.Result) error {
	var parts []string
	for _, b := range res.Content {
		if b.Text != "" {
			parts = append(parts, b.Text)
		}
	}
	message := text.Truncate(strings.Join(parts, "\n"), maxErrorText)
	repeats := func(part string) bool { return sameJSON(part, res.Structured) }
	if res.Structured != nil && !slices.ContainsFunc(parts, repeats) {
		message = strings.TrimPrefix(message+"\n"+text.Truncate(string(res.Structured), maxErrorText), "\n")
	}
	message = cmp.Or(message, "the tool failed without a message")
	return markSent(fail(c, errcode.ToolFailed, "%s", quoted(ctx, cfg, c, message)))
}

// sameJSON reports whether a text is the JSON value v.
func sameJSON(s string, v json.RawMessage) bool {
	var a, b bytes.Buffer
	return json.Compact(&a, []byte(s)) == nil && json.Compact(&b, v) == nil && bytes.Equal(a.Bytes(), b.Bytes())
}

// quoted returns what a tool sent in a form for error messages: printable and, because it may contain private values,
// tokenised.
func quoted(ctx context.Context, cfg Config, c Call, message string) string {
	if data, err := json.Marshal(message); err == nil {
		if data, err = tokenise(ctx, cfg, c, data); err != nil || json.Unmarshal(data, &message) != nil {
			return "(what the tool sent could not be tokenised)"
		}
	}
	return text.Printable(message)
}

func tokenise(ctx context.Context, cfg Config, c Call, v json.RawMessage) (json.RawMessage, error) {
	if cfg.Hooks.Tokenise == nil {
		return v, nil
	}
	out, err := cfg.Hooks.Tokenise(ctx, c, v)
	if err == nil && !json.Valid(out) {
		err = errors.New("the privacy filter returned invalid JSON")
	}
	return out, err
}

func value(ctx context.Context, s *spiller, res tools.Result) (json.RawMessage, error) {
	if res.Structured != nil {
		return structured(ctx, s.cfg, s.call, res.Structured)
	}
	var values []json.RawMessage
	for i, b := range res.Content {
		v, err := content(ctx, s, i, b)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	switch len(values) {
	case 0:
		return json.RawMessage("null"), nil
	case 1:
		return values[0], nil
	}
	return json.Marshal(values)
}

func structured(ctx context.Context, cfg Config, c Call, v json.RawMessage) (json.RawMessage, error) {
	if s := cfg.Schemas.get(c.def).output; s != nil {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(v))
		if err == nil {
			err = s.validate(doc)
		}
		if err != nil {
			return nil, fail(c, errcode.Unavailable,
				"the tool's result does not match its schema: %s; the result is %s", explain(err),
				quoted(ctx, cfg, c, text.Truncate(string(v), maxErrorText)))
		}
	}
	var mark struct {
		Wrapped    bool                       `json:"x-fastmcp-wrap-result"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(c.def.OutputSchema, &mark) == nil && mark.Wrapped && len(mark.Properties) == 1 {
		var wrapped struct {
			Result json.RawMessage `json:"result"`
		}
		if json.Unmarshal(v, &wrapped) == nil && wrapped.Result != nil {
			return wrapped.Result, nil
		}
	}
	return v, nil
}

// content converts one block. Text stays a string unless it is a JSON object or list. In particular, text
// that looks like a number stays a string, so that the type of a tool's result does not depend on its value.
func content(ctx context.Context, s *spiller, i int, b tools.Content) (json.RawMessage, error) {
	switch {
	case b.Data != nil:
		return s.spill(ctx, fmt.Sprintf("%d.%s", i+1, extension(b.MediaType)), b.MediaType, b.Data)
	case b.Type == "resource_link":
		return json.Marshal(map[string]string{"uri": b.URI, "name": b.Text, "media_type": b.MediaType})
	}
	trimmed := strings.TrimSpace(b.Text)
	if (strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[")) && json.Valid([]byte(trimmed)) {
		return json.RawMessage(trimmed), nil
	}
	return json.Marshal(b.Text)
}

// spiller writes parts of one result to files.
type spiller struct {
	cfg   Config
	call  Call
	files []File
}

// spill writes data to a file and returns the reference that the program gets in its place.
func (s *spiller) spill(ctx context.Context, suffix, mediaType string, data []byte) (json.RawMessage, error) {
	c := s.call
	if s.cfg.Hooks.Spill == nil {
		return nil, fail(c, errcode.ResultTooLarge, "the result is %d bytes of %s, and this task cannot store files",
			len(data), mediaType)
	}
	name := fmt.Sprintf("%s-%s-%s-%d-%s",
		fileNamePart(c.Server), fileNamePart(c.Tool), c.key.ArgsHash[:8], c.key.N, suffix)
	path, err := s.cfg.Hooks.Spill(ctx, name, mediaType, data)
	if err != nil {
		return nil, fmt.Errorf("write the result to a file: %w", err)
	}
	s.files = append(s.files, File{Name: name, MediaType: mediaType, Data: data})
	return json.Marshal(map[string]any{"path": path, "media_type": mediaType, "bytes": len(data)})
}

// fileNamePart returns an untrusted name in a form that is safe in a file name.
func fileNamePart(s string) string {
	s = strings.Map(func(r rune) rune {
		if r|0x20 >= 'a' && r|0x20 <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, s)
	return s[:min(len(s), 40)]
}

var extensions = map[string]string{
	"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", "image/svg+xml": "svg",
	"audio/wav": "wav", "audio/mpeg": "mp3", "audio/ogg": "ogg", "application/pdf": "pdf", "application/json": "json",
	"text/plain": "txt", "text/html": "html", "text/csv": "csv",
}

func extension(mediaType string) string {
	if e, ok := extensions[strings.ToLower(mediaType)]; ok {
		return e
	}
	return "bin"
}
