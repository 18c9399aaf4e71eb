package privacy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// ReplaceJSON is like Replace for each string and each member name of a JSON value. If the name of a member announces a
// type, such as "email" or "phone_number", the member's whole value is replaced, even a number. Other numbers are
// replaced if they are card numbers.
func (t *Tokens) ReplaceJSON(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
	if t == nil {
		return raw, nil
	}
	var recognized map[string][]Span
	if t.recognizer != nil {
		var texts []string
		if _, err := mapJSON(raw, func(s scalar) (scalar, error) {
			if !s.number {
				texts = append(texts, s.text)
			}
			return s, nil
		}); err != nil {
			return nil, err
		}
		recognized, _ = t.recognize(ctx, texts...) // after an error, it finds the whole text where it could not look
	}
	return mapJSON(raw, func(s scalar) (scalar, error) {
		switch kind := t.announced(s); {
		case kind != "":
			s.text, s.number = t.token(kind, value{Text: s.text, Number: s.number}), false
		case !s.number:
			s.text = t.replaceSpans(s.text, t.find(s.text, recognized[s.text]))
		case isCardNumber(s.text) && t.detector.types[Card]:
			s.text, s.number = t.token(Card, value{Text: s.text, Number: true}), false
		}
		return s, nil
	})
}

// RestoreJSON returns a JSON value with the values in place of the tokens, in strings and member names. A string that
// consists of the token of a number becomes the number. Tokens of other scopes, and expired ones, stay as they are.
func (t *Tokens) RestoreJSON(raw json.RawMessage) (json.RawMessage, error) {
	// A token begins with [, which JSON may write as \u005b.
	if t == nil || bytes.IndexByte(raw, '[') < 0 && !bytes.Contains(raw, []byte(`\u005`)) {
		return raw, nil
	}
	r := restorer{Tokens: t}
	return mapJSON(raw, func(s scalar) (scalar, error) {
		if s.number {
			return s, nil
		}
		if v, ok := t.lookup(s.text); ok && v.Number && !s.isName {
			s.text, s.number = v.Text, true
			return s, nil
		}
		s.text = r.text(s.text)
		if r.added > maxRestored {
			return s, errRestored
		}
		return s, nil
	})
}

// announcedBy has the types that members announce, by their name without punctuation, in lower case.
var announcedBy = map[string]Type{
	"email": Email, "emailaddress": Email, "mailaddress": Email,
	"phone": Phone, "phonenumber": Phone, "mobile": Phone, "mobilenumber": Phone, "telephone": Phone, "fax": Phone,
	"ssn": SSN, "socialsecuritynumber": SSN,
	"cardnumber": Card, "creditcard": Card, "creditcardnumber": Card,
	"iban":     IBAN,
	"password": Secret, "apikey": Secret, "accesstoken": Secret, "privatekey": Secret, "clientsecret": Secret,
	"firstname": Person, "lastname": Person, "fullname": Person, "surname": Person,
}

var nameSeparators = strings.NewReplacer("_", "", "-", "", " ", "")

// Limits of the value of a member whose name announces a type: a longer value is probably text, and a number with fewer
// digits a count.
const (
	maxAnnounced = 256 // bytes
	minAnnounced = 7   // digits
)

// announced returns the type that the name of a member announces, or "".
func (t *Tokens) announced(s scalar) Type {
	if s.isName || s.member == "" || len(s.member) > 40 || len(s.text) > maxAnnounced {
		return ""
	}
	kind := announcedBy[strings.ToLower(nameSeparators.Replace(s.member))]
	if !t.detector.types[kind] || strings.TrimSpace(s.text) == "" {
		return ""
	}
	if s.number && (len(s.text) < minAnnounced || strings.Trim(s.text, "0123456789") != "") {
		return ""
	}
	if strings.ContainsAny(s.text, "\r\n") || tokenForm.MatchString(s.text) {
		return ""
	}
	return kind
}

// isCardNumber reports whether a number whose member announces no type is that of a card of a large issuer. It does
// not find other cards, because most numbers with so many digits are ids and timestamps.
func isCardNumber(s string) bool {
	s = wholeDigits(s)
	return len(s) >= 13 && len(s) <= 19 && s[0] >= '2' && s[0] <= '6' && luhn(s)
}

// wholeDigits returns the digits of a JSON number that is whole, in any of its forms and without its sign, such as
// those of 4e2 or -400.0. It returns "" for other numbers, and for those that are too large for a card number.
func wholeDigits(s string) string {
	const enough = 40
	if len(s) > enough {
		return ""
	}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(s, "-")), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	shift, err := strconv.Atoi(exponent)
	if exponent != "" && err != nil || shift < -enough || shift > enough {
		return ""
	}
	digits := whole + fraction
	if shift -= len(fraction); shift >= 0 {
		return strings.TrimLeft(digits+strings.Repeat("0", shift), "0")
	}
	whole = digits[:max(0, len(digits)+shift)]
	if strings.Trim(digits[len(whole):], "0") != "" {
		return ""
	}
	return strings.TrimLeft(whole, "0")
}

// scalar is a string, a number or a member name of a JSON value.
type scalar struct {
	text   string // the characters of a string, or the literal of a number
	number bool
	isName bool
	member string // the name of the member whose value is the scalar, or a list that contains it
}

// jsonOptions accept what encoding/json accepts.
var jsonOptions = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// mapJSON returns a JSON value with the scalars that change returns. The order of members and the digits of other
// numbers stay as they are.
func mapJSON(raw json.RawMessage, change func(scalar) (scalar, error)) (json.RawMessage, error) {
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsonOptions...)
	var out bytes.Buffer
	e := jsontext.NewEncoder(&out, jsonOptions...)
	var names []string // of the members on the path to the current value
	for {
		token, err := d.ReadToken()
		switch {
		case errors.Is(err, io.EOF) && out.Len() > 0:
			return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
		case err != nil:
			return nil, fmt.Errorf("read the JSON value: %w", err)
		case len(names) == 0 && out.Len() > 0:
			return nil, errors.New("more than one JSON value")
		}
		switch kind := token.Kind(); kind { //nolint:exhaustive // null, true and false stay as they are
		case '{':
			names = append(names, "")
		case '[':
			names = append(names, last(names))
		case '}', ']':
			names = names[:len(names)-1]
		case '"', '0':
			parent, n := d.StackIndex(d.StackDepth())
			s := scalar{text: token.String(), number: kind == '0', member: last(names)}
			if s.isName = parent == '{' && n%2 == 1; s.isName {
				names[len(names)-1], s.member = s.text, ""
			}
			if token, err = changed(s, token, change); err != nil {
				return nil, err
			}
		}
		if err := e.WriteToken(token); err != nil {
			return nil, fmt.Errorf("write the JSON value: %w", err)
		}
	}
}

func last(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[len(names)-1]
}

// changed returns the token for the scalar that change returns. It returns token if the scalar is the same.
func changed(s scalar, token jsontext.Token, change func(scalar) (scalar, error)) (jsontext.Token, error) {
	to, err := change(s)
	switch {
	case err != nil || to == s:
		return token, err
	case to.number:
		d := jsontext.NewDecoder(strings.NewReader(to.text))
		number, err := d.ReadToken()
		return number.Clone(), err
	}
	return jsontext.String(to.text), nil
}
