package pygen

import (
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/codefleet/codefleet/internal/text"
)

// referenceKeys are the keywords that refer to another schema.
var referenceKeys = []string{"$ref", "$dynamicRef", "$recursiveRef"}

// referenceOf returns the reference of a schema, or false if the schema has none.
func referenceOf(s object) (string, bool) {
	for _, key := range referenceKeys {
		if ref, ok := s[key].(string); ok {
			return ref, true
		}
	}
	return "", false
}

// shaping are the keywords, besides references, on which the type of a schema depends.
var shaping = slices.Concat(dependencyKeys, strings.Fields(`type enum const allOf anyOf oneOf if then else
	properties patternProperties additionalProperties unevaluatedProperties required
	items prefixItems additionalItems unevaluatedItems contains contentSchema contentMediaType`))

// aliased returns the reference of a schema that has the type of the reference's target, such as a reference with a
// description, or with the target's own "type". The reference may be the only part of allOf. If the schema has several
// references, such as $ref and $dynamicRef, only that of referenceOf counts: the schema may then accept fewer values.
func (d document) aliased(s object) string {
	ref, isRef := referenceOf(s)
	if all := asList(s["allOf"]); !isRef && len(all) == 1 {
		part, _ := all[0].(object)
		s = merge(without(s, "allOf"), part)
		ref, isRef = referenceOf(s)
	}
	if !isRef {
		return ""
	}
	for _, key := range shaping {
		value, has := s[key]
		if has && key == "type" {
			target, _ := d.lookup(ref)
			shape, _ := target.(object)
			has = !reflect.DeepEqual(shape["type"], value)
		}
		if has {
			return ""
		}
	}
	return ref
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
	if *d.stepsLeft -= 1 + len(ref)/100; *d.stepsLeft < 0 {
		return nil, false
	}
	uri, fragment, _ := strings.Cut(ref, "#")
	uri = resolveURI(d.base, uri)
	if fragment != "" && fragment[0] != '/' {
		target := d.named[uri+"#"+fragment]
		return target, target != nil
	}
	target := d.named[uri]
	if target == nil {
		return nil, false
	}
	return follow(target, fragment)
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

// nameSchemas sets the base of a document, and collects its schemas by URI. The URI of a schema is its "$id", or the
// "$id" of the schema around it with its anchor as the fragment. nameSchemas makes each "$ref" within a schema that has
// an "$id" of its own absolute. If two different schemas have one URI, it finds neither, with two exceptions: the
// document's own URI finds the document, and a further schema whose "$dynamicAnchor" repeats a name is passed over, so
// that the name finds the outermost.
func (d *document) nameSchemas() {
	root, _ := d.root.(object)
	id, _ := root["$id"].(string)
	if uri, _, _ := strings.Cut(id, "#"); resolveURI("", uri) != unresolved {
		d.base = resolveURI("", uri)
	}
	d.named = map[string]any{d.base: d.root}
	add := func(name string, schema object, dynamic bool) {
		first, taken := d.named[name]
		switch {
		case !taken:
			d.named[name] = schema
		case !dynamic && name != d.base && !reflect.DeepEqual(first, any(schema)):
			d.named[name] = nil
		}
	}
	type place struct {
		part     any
		base     string
		embedded bool // in a schema that has an "$id", below the root
	}
	places := []place{{part: d.root, base: d.base}} // those of outer schemas first
	for i := 0; i < len(places); i++ {
		at := places[i]
		if list, ok := at.part.([]any); ok {
			for _, item := range list {
				places = append(places, place{item, at.base, at.embedded})
			}
		}
		s, _ := at.part.(object)
		id, _ := s["$id"].(string)
		uri, anchor, _ := strings.Cut(id, "#")
		if uri != "" && i > 0 {
			at.base, at.embedded = resolveURI(at.base, uri), true
			add(at.base, s, false)
		}
		if anchor != "" {
			add(at.base+"#"+anchor, s, false)
		}
		if anchor, ok := s["$anchor"].(string); ok {
			add(at.base+"#"+anchor, s, false)
		}
		if anchor, ok := s["$dynamicAnchor"].(string); ok {
			add(at.base+"#"+anchor, s, true)
		}
		if at.embedded {
			makeAbsolute(s, at.base)
		}
		for _, key := range slices.Sorted(maps.Keys(s)) {
			places = append(places, place{s[key], at.base, at.embedded})
		}
	}
}

// makeAbsolute makes the "$ref" of a schema absolute. The target of a dynamic reference depends on the schemas that
// lead to it: it is not resolved.
func makeAbsolute(s object, base string) {
	for _, key := range referenceKeys {
		ref, ok := s[key].(string)
		switch uri, fragment, _ := strings.Cut(ref, "#"); {
		case ok && key == "$ref":
			s[key] = resolveURI(base, uri) + "#" + fragment
		case ok:
			s[key] = unresolved
		}
	}
}

const (
	maxURI     = 500    // limit of a schema's URI, in bytes
	unresolved = "\x00" // is no URI, and resolves none
)

// resolveURI returns the absolute form of a reference's uri in a schema with the URI base. It returns unresolved if one
// of them cannot be parsed or is too long.
func resolveURI(base, uri string) string {
	if uri == "" {
		return base
	}
	b, err := url.Parse(base)
	if err != nil || len(uri) > maxURI {
		return unresolved
	}
	u, err := b.Parse(uri)
	if err != nil || len(u.String()) > maxURI {
		return unresolved
	}
	return u.String()
}
