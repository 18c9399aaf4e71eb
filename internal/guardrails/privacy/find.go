package privacy

import (
	"cmp"
	"net/netip"
	"slices"
)

// Type is a kind of personal data or secret.
type Type string

// The types that Detector finds.
const (
	Email  Type = "email"
	Phone  Type = "phone"
	SSN    Type = "ssn" // US social security number
	Card   Type = "card"
	IBAN   Type = "iban"
	IP     Type = "ip"     // IPv4 or IPv6 address
	Secret Type = "secret" // API key, access token or private key
)

// The types that only a Recognizer finds.
const (
	Person Type = "person" // name of a person
	Place  Type = "place"
)

// Types returns the types that Detector finds, in the order of the documentation.
func Types() []Type { return []Type{Email, Phone, SSN, Card, IBAN, IP, Secret} }

// Span is a value that was found: text[Start:End].
type Span struct {
	Start, End int // in bytes
	Type       Type
}

// Detector finds values of some types. It is safe for concurrent use.
type Detector struct {
	types   map[Type]bool
	secrets *secrets // nil unless Secret is among types

	skipThisHost bool // Find leaves out the addresses of this host, such as 127.0.0.1
}

// New returns a Detector of the given types.
func New(types ...Type) (*Detector, error) {
	d := &Detector{types: map[Type]bool{}}
	for _, t := range types {
		d.types[t] = true
	}
	if !d.types[Secret] {
		return d, nil
	}
	var err error
	d.secrets, err = loadSecrets()
	return d, err
}

// only returns a Detector of the given types.
func (d *Detector) only(types []Type) *Detector {
	out := &Detector{types: map[Type]bool{}, secrets: d.secrets}
	for _, t := range types {
		out.types[t] = true
	}
	if !out.types[Secret] {
		out.secrets = nil
	}
	return out
}

// Find returns the values in text in order. Of values that overlap, it returns the longest one, and what remains of the
// others. The time that it takes is proportional to the length of the text.
func (d *Detector) Find(text string) []Span {
	n := normalize(text)
	s := scanner{text: n.text}
	s.scan()
	found := slices.DeleteFunc(s.found, func(f Span) bool { return !d.types[f.Type] })
	if d.secrets != nil {
		found = append(found, d.secrets.find(n.text)...)
	}
	found = longest(n.text, found)
	if d.skipThisHost {
		found = slices.DeleteFunc(found, func(f Span) bool { return f.Type == IP && isThisHost(n.text[f.Start:f.End]) })
	}
	for i, f := range found {
		found[i].Start, found[i].End = n.original(f.Start), n.original(f.End)
	}
	return found
}

// isThisHost reports whether an address is a loopback address, 0.0.0.0 or ::.
func isThisHost(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && (a.IsLoopback() || a.IsUnspecified())
}

// longest sorts spans of a text. Of those that overlap, it keeps the longest, and what remains of the others.
func longest(text string, found []Span) []Span {
	slices.SortFunc(found, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End))
	})
	kept := found[:0]
	var sizes []int // of those in kept, before they were cut
	for _, f := range found {
		size := f.End - f.Start
		// Those in kept that end after f.Start began before it: a longer one covers a part of f, at its start, and a
		// shorter one ends before f does.
		last := len(kept) - 1
		for ; last >= 0 && kept[last].End > f.Start && sizes[last] < size; last-- {
			if kept[last].Start < f.Start {
				kept[last].End = f.Start
				break
			}
		}
		kept, sizes = kept[:last+1], sizes[:last+1]
		if last >= 0 {
			f.Start = max(f.Start, kept[last].End)
		}
		if f.Start < f.End {
			kept, sizes = append(kept, f), append(sizes, size)
		}
	}
	out := kept[:0]
	for i, f := range kept {
		if f.End-f.Start < sizes[i] {
			f = trim(text, f)
		}
		if f.Start < f.End {
			out = append(out, f)
		}
	}
	return out
}

// trim returns a span without the characters at its start and end that are neither letters nor digits.
func trim(text string, s Span) Span {
	for s.Start < s.End && class[text[s.Start]]&isAlnum == 0 {
		s.Start++
	}
	for s.Start < s.End && class[text[s.End-1]]&isAlnum == 0 {
		s.End--
	}
	return s
}
