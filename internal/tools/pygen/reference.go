package pygen

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// referenceKeys are the keywords that refer to another schema.
var referenceKeys = []string{"$ref", "$dynamicRef", "$recursiveRef"}

// referenceOf returns the reference of a schema. It is false if the schema has none.
func referenceOf(s object) (string, bool) {
	for _, key := range referenceKeys {
		if ref, ok := s[key].(string); ok {
			return ref, true
		}
	}
	return "", false
}

// lookup resolves a reference within the document: "#", "#/…", an anchor, or a "$id". It follows a schema that is only
// another reference.
func (d document) lookup(ref string) (any, bool) {
	for range maxChain {
		target, found := d.find(ref)
		s, _ := target.(object)
		next, more := referenceOf(s)
		if !found || !more || len(s) > 1 {
			return target, found
		}
		ref = next
	}
	return nil, false
}

// maxChain bounds the references that follow one another.
const maxChain = 100

func (d document) find(ref string) (any, bool) {
	if pointer, ok := strings.CutPrefix(ref, "#"); ok && (pointer == "" || pointer[0] == '/') {
		return follow(d.root, pointer)
	}
	if target, ok := d.named[ref]; ok {
		return target, true
	}
	root, _ := d.root.(object)
	base, _ := root["$id"].(string)
	ref, pointer, _ := strings.Cut(resolveURI(base, ref), "#")
	if pointer == "" || pointer[0] == '/' {
		target, ok := d.named[ref]
		if !ok {
			return nil, false
		}
		return follow(target, pointer)
	}
	target, ok := d.named[ref+"#"+pointer]
	return target, ok
}

// follow returns the part of a schema to which a JSON pointer, which may be escaped as in a URI, points.
func follow(at any, pointer string) (any, bool) {
	if unescaped, err := url.PathUnescape(pointer); err == nil {
		pointer = unescaped
	}
	if pointer == "" {
		return at, true
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		token = text.DecodeToken(token)
		switch v := at.(type) {
		case object:
			var ok bool
			if at, ok = v[token]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			at = v[i]
		default:
			return nil, false
		}
	}
	return at, true
}

// namedSchemas returns the schemas of a document by their "$id", as it is written and as an absolute URI, and by their
// anchor, alone and after the "$id" of the schema around it.
func namedSchemas(root any) map[string]any {
	named := map[string]any{}
	var collect func(part any, base string)
	collect = func(part any, base string) {
		switch v := part.(type) {
		case []any:
			for _, item := range v {
				collect(item, base)
			}
		case object:
			if id, ok := v["$id"].(string); ok && len(id) <= maxURI {
				base, _, _ = strings.Cut(resolveURI(base, id), "#")
				named[id], named[base] = v, v
			}
			for _, key := range []string{"$anchor", "$dynamicAnchor"} {
				if anchor, ok := v[key].(string); ok {
					named["#"+anchor], named[base+"#"+anchor] = v, v
				}
			}
			for _, member := range v {
				collect(member, base)
			}
		}
	}
	collect(root, "")
	return named
}

// maxURI is the maximum length of a "$id", in bytes.
const maxURI = 2000

// resolveURI returns the URI that a reference means in a schema with the given URI.
func resolveURI(base, ref string) string {
	b, err := url.Parse(base)
	if err != nil {
		return ref
	}
	u, err := b.Parse(ref)
	if err != nil {
		return ref
	}
	return u.String()
}
