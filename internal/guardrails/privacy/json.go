package privacy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// ReplaceJSON is like Replace for each string and each member name of a JSON value. A member whose name announces a
// type, such as "email" or "phone_number", is replaced whole, also if it is a number. Numbers elsewhere stay as they
// are. Members that get the same name because of their tokens do not occur: different values have different tokens.
func (t *Tokens) ReplaceJSON(raw json.RawMessage) (json.RawMessage, error) {
	return mapJSON(raw, func(name, s string, isString bool) (string, bool) {
		if kind := announced(name); kind != "" && t.detector.types[kind] && strings.TrimSpace(s) != "" {
			return t.token(kind, s), true
		}
		if !isString {
			return s, false
		}
		return t.Replace(s), true
	})
}

// RestoreJSON is like Restore for each string and each member name of a JSON value.
func (t *Tokens) RestoreJSON(raw json.RawMessage) (json.RawMessage, error) {
	return mapJSON(raw, func(_, s string, isString bool) (string, bool) { return t.Restore(s), isString })
}

// announcedBy has the types that members announce, by their name without punctuation, in lower case.
var announcedBy = map[string]Type{
	"email": Email, "emailaddress": Email, "mail": Email,
	"phone": Phone, "phonenumber": Phone, "mobile": Phone, "mobilenumber": Phone, "telephone": Phone, "fax": Phone,
	"ssn": SSN, "socialsecuritynumber": SSN,
	"cardnumber": Card, "creditcard": Card, "creditcardnumber": Card,
	"iban": IBAN,
	"ip":   IP, "ipaddress": IP, "clientip": IP,
	"password": Secret, "apikey": Secret, "accesstoken": Secret, "privatekey": Secret, "clientsecret": Secret,
}

// announced returns the type that a member's name announces, or "".
func announced(name string) Type {
	return announcedBy[strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(name))]
}

// mapJSON returns a JSON value whose strings, member names and numbers change has replaced. It is told the name of
// the member that a string or number is the value of, or an element of its array. It returns a string, or the literal
// of a number. The order of members and the digits of numbers stay as they are.
func mapJSON(raw json.RawMessage, change func(name, s string, isString bool) (string, bool)) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	m := mapper{decoder: d, change: change}
	if err := m.value(""); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return m.out.Bytes(), nil
}

type mapper struct {
	decoder *json.Decoder
	change  func(name, s string, isString bool) (string, bool)
	out     bytes.Buffer
}

// value copies the next value, which is the member called name.
func (m *mapper) value(name string) error {
	token, err := m.decoder.Token()
	if err != nil {
		return err
	}
	switch v := token.(type) {
	case json.Delim:
		return m.container(name, v)
	case string:
		return m.scalar(m.change(name, v, true))
	case json.Number:
		return m.scalar(m.change(name, v.String(), false))
	default: // true, false, null
		return m.literal(v)
	}
}

func (m *mapper) container(name string, open json.Delim) error {
	m.out.WriteByte(byte(open))
	for n := 0; m.decoder.More(); n++ {
		if n > 0 {
			m.out.WriteByte(',')
		}
		if open == '{' {
			key, err := m.decoder.Token()
			if err != nil {
				return err
			}
			name, _ = key.(string) // the decoder checks it
			if err := m.scalar(m.change("", name, true)); err != nil {
				return err
			}
			m.out.WriteByte(':')
		}
		if err := m.value(name); err != nil {
			return err
		}
	}
	end, err := m.decoder.Token()
	if err != nil {
		return err
	}
	delim, _ := end.(json.Delim)
	m.out.WriteByte(byte(delim))
	return nil
}

func (m *mapper) scalar(s string, isString bool) error {
	if !isString {
		m.out.WriteString(s)
		return nil
	}
	return m.literal(s)
}

func (m *mapper) literal(v any) error {
	e := json.NewEncoder(&m.out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	m.out.Truncate(m.out.Len() - 1) // the newline
	return nil
}
