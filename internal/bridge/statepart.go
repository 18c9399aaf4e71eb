package bridge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// omittedPart is a member or an item of a state document that takes too much of a result.
type omittedPart struct {
	Path  string `json:"path"`
	Bytes int    `json:"bytes"`
}

// statePart returns the part of a JSON document to which a JSON Pointer (RFC 6901) points.
func statePart(document json.RawMessage, path string) (json.RawMessage, error) {
	if path == "" {
		return document, nil
	}
	if !strings.HasPrefix(path, "/") {
		return nil, badArgument("path %q: want a JSON Pointer such as /orders/7", text.Truncate(path, maxSummary))
	}
	part := document
	for token := range strings.SplitSeq(path[1:], "/") {
		next, ok := member(part, text.DecodeToken(token))
		if !ok {
			return nil, badArgument("path %q: the document has no such part", text.Truncate(path, maxSummary))
		}
		part = next
	}
	return part, nil
}

// member returns a member of an object or an item of an array.
func member(value json.RawMessage, name string) (json.RawMessage, bool) {
	switch kindOf(value) {
	case '{':
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) != nil {
			return nil, false
		}
		v, ok := object[name]
		return v, ok
	case '[':
		var list []json.RawMessage
		i, err := strconv.ParseUint(name, 10, 31)
		if err != nil || json.Unmarshal(value, &list) != nil || i >= uint64(len(list)) {
			return nil, false
		}
		return list[i], true
	}
	return nil, false
}

// kindOf returns the first character of a JSON value, which tells its type.
func kindOf(value json.RawMessage) byte {
	value = bytes.TrimLeft(value, " \t\r\n")
	if len(value) == 0 {
		return 0
	}
	return value[0]
}

const (
	hintSize    = 500 // more than the size of Truncated, NextOffset and Hint in JSON
	maxPathEcho = 200 // bytes of a path in Omitted
)

// fit sets Data to the part, or to as much of it as fits into limit bytes of JSON, from in.Offset on.
func (out *getStateOut) fit(part json.RawMessage, in getStateIn, limit int) error {
	budget := limit - jsonSize(out) - hintSize
	if in.Offset == 0 && jsonSize(part) <= budget {
		out.Data = part
		return nil
	}
	var shown any
	end, all := 0, 0
	switch kindOf(part) {
	case '{', '[':
		elements, err := elementsOf(part)
		if err != nil {
			return err
		}
		shown, end = out.fitElements(elements, kindOf(part) == '[', in, budget)
		all = len(elements)
	case '"':
		var s string
		if err := json.Unmarshal(part, &s); err != nil {
			return fmt.Errorf("decode a state document: %w", err)
		}
		rest := suffix(s, in.Offset)
		prefix := textPrefix(rest, budget)
		shown, end, all = prefix, len(s)-len(rest)+len(prefix), len(s)
	default:
		return badArgument("offset: the part has no members, items or bytes")
	}
	data, err := marshal(shown)
	if err != nil {
		return err
	}
	out.Data = data
	out.Truncated = in.Offset > 0 || end < all || len(out.Omitted) > 0
	if end < all {
		out.NextOffset = end
	}
	if out.Truncated {
		out.Hint = "data is a part of the document: do not save it. For the rest, call get_state with offset or " +
			"path, or let a program read " + out.File + " and return or change what you need"
	}
	return nil
}

// element is a member of an object or an item of an array.
type element struct {
	name  string // the member's name, or the item's index
	value json.RawMessage
}

// elementsOf returns the members of an object, sorted by name, or the items of an array.
func elementsOf(value json.RawMessage) ([]element, error) {
	var elements []element
	if kindOf(value) == '[' {
		var list []json.RawMessage
		if err := json.Unmarshal(value, &list); err != nil {
			return nil, fmt.Errorf("decode a state document: %w", err)
		}
		for i, v := range list {
			elements = append(elements, element{strconv.Itoa(i), v})
		}
		return elements, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(value, &object); err != nil {
		return nil, fmt.Errorf("decode a state document: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		elements = append(elements, element{name, object[name]})
	}
	return elements, nil
}

// fitElements returns an object or array with the elements that fit into budget bytes of JSON, from in.Offset on, and
// the position after the last one. It lists elements that take more than half of the budget in Omitted, and replaces
// them with null in an array.
func (out *getStateOut) fitElements(elements []element, array bool, in getStateIn, budget int) (shown any, end int) {
	object, list := map[string]json.RawMessage{}, []json.RawMessage{}
	size, i := len(`{}"omitted":[],`), min(in.Offset, len(elements))
	for ; i < len(elements); i++ {
		e := elements[i]
		bytes := textSize(e.name) + len(":,") + jsonSize(e.value)
		path := text.Truncate(in.Path+"/"+text.EncodeToken(e.name), maxPathEcho)
		omitted := omittedPart{path, len(e.value)}
		tooLong := bytes > budget/2
		if tooLong {
			bytes = len("null,") + jsonSize(omitted) + len(",")
		}
		if size += bytes; size > budget {
			break
		}
		switch {
		case tooLong:
			out.Omitted = append(out.Omitted, omitted)
			list = append(list, json.RawMessage("null"))
		case array:
			list = append(list, e.value)
		default:
			object[e.name] = e.value
		}
	}
	if array {
		return list, i
	}
	return object, i
}
