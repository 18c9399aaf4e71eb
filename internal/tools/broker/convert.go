package broker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
)

// maxBlocks is how many blocks of images, audio and other data a result may have. Each of them becomes a file.
const maxBlocks = 10_000

// dataBlocks returns the number of blocks with data.
func dataBlocks(content []tools.Content) (n int) {
	for _, b := range content {
		if b.Data != nil {
			n++
		}
	}
	return n
}

// convert converts a tool's result for the program: to its validated structured value and a list of what the tool
// sent besides it, or else to its text, which is decoded if it is a JSON object or list. Images, audio and large values
// become files.
func convert(cfg Config) layer {
	return func(ctx context.Context, c Call, next handler) (Result, error) {
		r, err := next(ctx, c)
		if err != nil {
			return r, err
		}
		conv := &converter{cfg: cfg, call: c}
		if r.raw.IsError {
			raw := *r.raw
			if dataBlocks(raw.Content) > maxBlocks {
				raw.Content = raw.Content[:maxBlocks]
			}
			err := toolError(ctx, conv, raw)
			return Result{files: conv.files}, err
		}
		if n := dataBlocks(r.raw.Content); n > maxBlocks {
			return Result{}, markSent(fail(c, errcode.ResultTooLarge,
				"the result has %d blocks of data; the limit is %d: have the tool return less, or larger blocks",
				n, maxBlocks))
		}
		value, extra, err := conv.convert(ctx, *r.raw)
		if err != nil {
			return Result{files: conv.files}, markSent(asError(ctx, c, err))
		}
		return Result{Value: value, Content: extra, files: conv.files}, nil
	}
}

func (c *converter) convert(ctx context.Context, res tools.Result) (value, extra json.RawMessage, err error) {
	if res.Structured == nil && c.cfg.Schemas.get(c.call.def).output != nil {
		if res.Structured = structureInText(res.Content); res.Structured == nil {
			e := fail(c.call, errcode.Unavailable, "the call was made, but the tool's result has no structured "+
				"content, although the tool has an output schema")
			return nil, nil, c.attach(ctx, e, res)
		}
	}
	if res.Structured == nil {
		value, err = unstructured(ctx, c, res)
	} else if value, err = structured(ctx, c, res); err == nil {
		known := newKnown(res.Structured, value)
		extra, err = c.blocks(ctx, slices.DeleteFunc(slices.Clone(res.Content), func(b tools.Content) bool {
			return ctx.Err() == nil && known.repeatedBy(b) // once ctx has ended, blocks returns its error
		}))
	}
	if err == nil {
		value, err = c.deliver(ctx, "all.json", value)
	}
	return value, extra, err
}

// structureInText returns the JSON that is the only text of a result: older servers send no structured content. It
// returns nil if there is none.
func structureInText(content []tools.Content) json.RawMessage {
	content = slices.DeleteFunc(slices.Clone(content), func(b tools.Content) bool { return b.Type != "text" })
	if len(content) != 1 || !json.Valid([]byte(content[0].Text)) {
		return nil
	}
	return json.RawMessage(content[0].Text)
}

// deliver returns a value as the program gets it: tokenised and, if it is large, as a reference to a file.
func (c *converter) deliver(ctx context.Context, suffix string, v json.RawMessage) (json.RawMessage, error) {
	v, err := tokenise(ctx, c.cfg, c.call, v)
	if err == nil && len(v) > c.cfg.SpillAt {
		return c.spill(ctx, suffix, "application/json", v)
	}
	return v, err
}

// blocks returns content blocks as a list, or nil if there are none. A large list becomes a file; the list that the
// program gets then contains only the reference to it.
func (c *converter) blocks(ctx context.Context, list []tools.Content) (json.RawMessage, error) {
	if len(list) == 0 {
		return nil, nil
	}
	converted, err := c.contents(ctx, list)
	if err != nil {
		return nil, err
	}
	all, err := json.Marshal(converted)
	if err == nil {
		all, err = tokenise(ctx, c.cfg, c.call, all)
	}
	if err != nil || len(all) <= c.cfg.SpillAt {
		return all, err
	}
	file, err := c.spill(ctx, "content.json", "application/json", all)
	if err != nil {
		return nil, err
	}
	return json.Marshal([]json.RawMessage{file})
}

const withoutMessage = "the tool failed without a message"

// maxErrorText is how many bytes of a tool's text, and how many of its structured content, an error message may have.
const maxErrorText = 4000

// toolError converts a tool's error result. The message is its text, and its structured content if the text does not
// contain it.
func toolError(ctx context.Context, c *converter, res tools.Result) error {
	var parts []string
	for _, b := range res.Content {
		if b.Text != "" {
			parts = append(parts, b.Text)
		}
	}
	message := quoted(ctx, c.cfg, c.call, strings.Join(parts, "\n"))
	if res.Structured != nil && !slices.ContainsFunc(res.Content, newKnown(res.Structured).repeatedBy) {
		message = strings.TrimPrefix(message+"\n"+quotedJSON(ctx, c.cfg, c.call, res.Structured), "\n")
	}
	e := fail(c.call, errcode.ToolFailed, "%s", cmp.Or(message, withoutMessage))
	return markSent(c.attach(ctx, e, res))
}

// attach adds to an error what the tool sent. It omits what cannot be stored, because the error itself is more
// important.
func (c *converter) attach(ctx context.Context, e *Error, res tools.Result) *Error {
	var structuredErr, contentErr error
	if res.Structured != nil {
		e.Structured, structuredErr = c.deliver(ctx, "all.json", res.Structured)
	}
	e.Content, contentErr = c.blocks(ctx, res.Content)
	if err := errors.Join(structuredErr, contentErr); err != nil {
		c.cfg.Log.WarnContext(ctx, "content of a tool's error lost",
			"task_id", c.cfg.Task.ID, "tool", c.call.ID(), "error", err)
	}
	return e
}

// known are values that blocks of content may repeat: as canonical JSON and, if they are strings, as text.
type known struct{ canonical, texts []string }

// newKnown returns the known values. It decodes each of them once, because a result may have many blocks.
func newKnown(values ...json.RawMessage) (k known) {
	for _, v := range values {
		if canonical, err := canonicalJSON(v); err == nil && !slices.Contains(k.canonical, string(canonical)) {
			k.canonical = append(k.canonical, string(canonical))
		}
		var s string
		if json.Unmarshal(v, &s) == nil {
			k.texts = append(k.texts, s)
		}
	}
	return k
}

// repeatedBy reports whether a block only repeats one of the values.
func (k known) repeatedBy(b tools.Content) bool {
	if b.Type != "text" {
		return false
	}
	if slices.Contains(k.texts, b.Text) {
		return true
	}
	canonical, err := canonicalJSON([]byte(b.Text))
	return err == nil && slices.Contains(k.canonical, string(canonical))
}

// quoted returns a tool's text in a form for error messages. It replaces private values with tokens before it truncates
// the text, because a truncated value would not be recognised.
func quoted(ctx context.Context, cfg Config, c Call, message string) string {
	if cfg.Hooks.Tokenise != nil {
		message = tokenText(ctx, cfg.Hooks, c, message)
	}
	return text.Printable(text.Truncate(message, maxErrorText))
}

// quotedJSON is like quoted, but for a JSON value.
func quotedJSON(ctx context.Context, cfg Config, c Call, v json.RawMessage) string {
	v, err := tokenise(ctx, cfg, c, v)
	if err != nil {
		return leftOut
	}
	return text.Printable(text.Truncate(string(v), maxErrorText))
}

// tokenise returns a JSON value with privacy tokens in place of values. Without the hook, it returns the
// value unchanged.
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

// unstructured returns the value of a result without structured content: its only block, the list of
// its blocks, or null if it has none.
func unstructured(ctx context.Context, c *converter, res tools.Result) (json.RawMessage, error) {
	values, err := c.contents(ctx, res.Content)
	switch {
	case err != nil:
		return nil, err
	case len(values) == 0:
		return json.RawMessage("null"), nil
	case len(values) == 1:
		return values[0], nil
	}
	return json.Marshal(values)
}

// contents converts content blocks. It stops when ctx ends.
func (c *converter) contents(ctx context.Context, list []tools.Content) ([]json.RawMessage, error) {
	var values []json.RawMessage
	for i, b := range list {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		v, err := content(ctx, c, i, b)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// structured validates a result's structured content and returns its value. Servers wrap a value that is no object in
// one, because older versions of the protocol require an object; structured unwraps it.
func structured(ctx context.Context, c *converter, res tools.Result) (json.RawMessage, error) {
	v := res.Structured
	if schema := c.cfg.Schemas.get(c.call.def).output; schema != nil {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(v))
		if err == nil {
			err = schema.validate(doc)
		}
		if err != nil {
			e := fail(c.call, errcode.Unavailable,
				"the tool's result does not match its schema: %s; the result is %s", explain(err),
				quotedJSON(ctx, c.cfg, c.call, v))
			return nil, c.attach(ctx, e, res)
		}
	}
	var mark struct {
		Wrapped    bool                       `json:"x-fastmcp-wrap-result"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(c.call.def.OutputSchema, &mark) == nil && mark.Wrapped && len(mark.Properties) == 1 {
		var wrapped struct {
			Result json.RawMessage `json:"result"`
		}
		if json.Unmarshal(v, &wrapped) == nil && wrapped.Result != nil {
			return wrapped.Result, nil
		}
	}
	return v, nil
}

// content converts one block. Data becomes a file. Text stays a string unless it is a JSON object or list. In
// particular, text that looks like a number stays a string, so that the type of a tool's result does not depend on its
// value.
func content(ctx context.Context, c *converter, i int, b tools.Content) (json.RawMessage, error) {
	switch {
	case b.Data != nil:
		data := b.Data
		if c.cfg.Hooks.Tokenise != nil && utf8.Valid(data) {
			data = []byte(tokenText(ctx, c.cfg.Hooks, c.call, string(data)))
		}
		media := mediaType(b.MediaType)
		return c.spill(ctx, fmt.Sprintf("%d.%s", i+1, extension(media)), media, data)
	case b.Type == "resource_link":
		return link(b)
	}
	trimmed := strings.TrimSpace(b.Text)
	if (strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[")) && json.Valid([]byte(trimmed)) {
		return json.RawMessage(trimmed), nil
	}
	return json.Marshal(b.Text)
}

// link converts a link to a resource, which the server has not sent.
func link(b tools.Content) (json.RawMessage, error) {
	out := map[string]any{"uri": b.URI, "name": b.Text, "media_type": b.MediaType}
	if b.Title != "" {
		out["title"] = b.Title
	}
	if b.Description != "" {
		out["description"] = b.Description
	}
	if b.Size != nil {
		out["bytes"] = *b.Size
	}
	return json.Marshal(out)
}

// converter converts one result of a tool, and writes parts of it to files.
type converter struct {
	cfg   Config
	call  Call
	files []File
}

// spill writes data to a file and returns the reference that the program gets in its place.
func (c *converter) spill(ctx context.Context, suffix, mediaType string, data []byte) (json.RawMessage, error) {
	if c.cfg.Hooks.Spill == nil {
		return nil, fail(c.call, errcode.ResultTooLarge,
			"the result is %d bytes of %s, and this task cannot store files", len(data), mediaType)
	}
	// The parts are for people. Only the call's name differs for each call: the parts of two tools may be the same.
	name := fmt.Sprintf("%s-%s-%s-%s",
		fileNamePart(c.call.Server), fileNamePart(c.call.Tool), c.call.key.name(), suffix)
	path, err := c.cfg.Hooks.Spill(ctx, name, mediaType, data)
	if err != nil {
		return nil, fmt.Errorf("write the result to a file: %w", err)
	}
	c.files = append(c.files, File{Name: name, MediaType: mediaType, Data: data})
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

// mediaType returns a media type that is in extensions without its parameters, and image/jpg under its registered name.
// It returns every other type as the server wrote it.
func mediaType(s string) string {
	base, _, err := mime.ParseMediaType(s)
	switch {
	case err != nil:
		return s
	case base == "image/jpg":
		return "image/jpeg"
	case extensions[base] != "":
		return base
	}
	return s
}

func extension(mediaType string) string {
	if e, ok := extensions[strings.ToLower(mediaType)]; ok {
		return e
	}
	return "bin"
}
