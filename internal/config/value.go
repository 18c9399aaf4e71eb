package config

import (
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/text"
)

// Secret is a string that formatting, logging and JSON hide. Use string(s) to get the value.
type Secret string

const hidden = "(hidden)"

// String hides the value.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString hides the value.
func (s Secret) GoString() string { return s.String() }

// LogValue hides the value.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the value.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

var (
	durationType = reflect.TypeFor[time.Duration]()
	secretType   = reflect.TypeFor[Secret]()
	stringsType  = reflect.TypeFor[[]string]()
)

// isScalar reports whether a value of type t is one line of text.
func isScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
		return true
	case reflect.Pointer:
		return isScalar(t.Elem())
	default:
		return t == stringsType
	}
}

// setText sets v from text. The elements of a list are separated by commas.
func setText(v reflect.Value, text string) error {
	text = strings.TrimSpace(text)
	if v.Type() == durationType {
		d, err := parseDuration(text)
		if err == nil {
			v.SetInt(int64(d))
		}
		return err
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := parseBool(text)
		if err != nil {
			return err
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		v.SetInt(n)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", text)
		}
		v.SetFloat(f)
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		if err := setText(p.Elem(), text); err != nil {
			return err
		}
		v.Set(p)
	case reflect.Slice:
		v.Set(reflect.ValueOf(splitList(text)))
	default:
		return fmt.Errorf("a value of type %s cannot be set from text", v.Type())
	}
	return nil
}

func splitList(text string) []string {
	var list []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// parseDuration parses a Go duration or a number of seconds.
func parseDuration(text string) (time.Duration, error) {
	if f, err := strconv.ParseFloat(text, 64); err == nil && f >= 0 && f < 1e9 {
		return time.Duration(f * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 30s, 5m or 300 (seconds)", text)
	}
	return d, nil
}

func parseBool(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "true", "yes", "on", "1":
		return true, nil
	case "false", "no", "off", "0":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", text)
}

// format formats the value of a key as `config show` prints it, with secrets hidden.
func format(key string, v reflect.Value) string {
	if v.Type() == durationType {
		return text.Duration(time.Duration(v.Int()))
	}
	list, ok := reflect.TypeAssert[[]string](v)
	if !ok {
		list = []string{fmt.Sprint(v.Interface())}
	}
	var shown []string
	for i, s := range list {
		switch {
		case argsKey.MatchString(key):
			before := ""
			if i > 0 {
				before = list[i-1]
			}
			s = hideInArg(s, before)
		case secretPath.MatchString(key):
			s = hidePath(s)
		case addressKey.MatchString(key):
			s = hideQuery(s)
		case isAddress.MatchString(s):
			s = text.HideCredentials(s)
		}
		shown = append(shown, s)
	}
	return strings.Join(shown, ", ")
}

// Patterns of keys: of addresses, of addresses whose path may be a secret, and of the arguments of commands.
var (
	addressKey = regexp.MustCompile(`(?:url|endpoint|mirror)$`)
	secretPath = regexp.MustCompile(`^(?:mcp_servers\[\d+\]\.url|nats\.url|telemetry\.endpoint)$`)
	argsKey    = regexp.MustCompile(`^mcp_servers\[\d+\]\.args$`)
)

var (
	urlQuery = regexp.MustCompile(`(?s)[?#].*`)
	urlPath  = regexp.MustCompile(`(?s)(://[^/?\s,]+)/.+`)
)

// hideQuery hides the credentials and the query of an address.
func hideQuery(s string) string {
	return urlQuery.ReplaceAllString(text.HideCredentials(s), "?"+hidden)
}

// hidePath also hides the path.
func hidePath(s string) string { return urlPath.ReplaceAllString(hideQuery(s), "$1/"+hidden) }

var (
	isAddress  = regexp.MustCompile(`^[\w+.-]+://`)
	isFlag     = regexp.MustCompile(`^(?:-[a-zA-Z]{1,3}|--[\w.-]+)$`) // not -pSECRET, a flag with its value
	anyFlag    = regexp.MustCompile(`^--?[\w.-]+$`)
	oneWord    = regexp.MustCompile(`^[-/]{0,2}\w[\w.-]*$`)
	slashFlag  = regexp.MustCompile(`^/[\w-]+:`)                       // of Windows
	isSwitch   = regexp.MustCompile(`^(?:-[yim]|-it|-ti|--yes|--rm)$`) // flags of npx, python and docker, before a name
	assignment = regexp.MustCompile(`^((?:--?)?[\w.-]+=)(.+)$`)        // of a flag or a variable
	plainWord  = regexp.MustCompile(`^[\w@./:+~^][\w@./:+~^-]*$`)      // a program, a package, an image, a path
	mixedWord  = regexp.MustCompile(`^[\w.=+-]*(?:\d[\w.=+-]*[A-Za-z]|[A-Za-z][\w.=+-]*\d)[\w.=+-]*$`)
	withUser   = regexp.MustCompile(`:.+@`) // a password before a host
	// plainValue matches a value of a flag that is not a secret: a path, a number, a boolean.
	plainValue = regexp.MustCompile(`^(?:(?:/|\.{1,2}/|~/)[\w./-]*|\d{1,9}(?:\.\d+)?|true|false)$`)
	secretName = regexp.MustCompile(`(?i)token|key|secret|pass|pat\b|auth|bearer|dsn|cred`)
)

const longWord = 20 // bytes; a shorter word with letters and digits may be a name

// hideInArg hides what may be a secret in an argument of an MCP server's command: the path of an address, values of
// flags and variables unless they are plain, long words of letters and digits, and words with characters that names and
// paths rarely have. If the argument before is a flag, this one may be its value.
func hideInArg(s, before string) string {
	assigned := assignment.FindStringSubmatch(s)
	isValue := anyFlag.MatchString(before) && !isSwitch.MatchString(before)
	isSecret := oneWord.MatchString(before) && secretName.MatchString(before)
	looksSecret := len(s) >= longWord && mixedWord.MatchString(s)
	switch {
	case isFlag.MatchString(s):
		return s
	case isSecret, looksSecret, slashFlag.MatchString(s):
		return hidden
	case isAddress.MatchString(s):
		return hidePath(s)
	case assigned != nil:
		if name, value := assigned[1], assigned[2]; secretName.MatchString(name) || !plainValue.MatchString(value) {
			return name + hidden
		}
		return s
	case plainValue.MatchString(s):
		return s
	case isValue, !plainWord.MatchString(s), withUser.MatchString(s):
		return hidden
	}
	return s
}
