package mcp

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
)

// A redactor removes the secrets in a server's settings from texts that leave this package: errors, which
// reach programs, the server's output, which is logged, and the definitions of tools. It is not used for the results of
// calls that succeed. It also finds secrets that are escaped.
type redactor struct {
	secrets []secret // the longest first
}

type secret struct{ text, replacement string }

// sessionID matches the ID of an HTTP session, which is secret, in errors of the SDK.
var sessionID = regexp.MustCompile(` \(session ID: [^)]*\)`)

// redact returns the text without secrets.
func (r redactor) redact(text string) string { return sessionID.ReplaceAllString(r.replace(text), "") }

// A part is a piece of a text, and what replaces it.
type part struct {
	from, to    int
	replacement string
}

// replace returns the text with each secret replaced.
func (r redactor) replace(text string) string {
	if len(r.secrets) == 0 {
		return text
	}
	var found []part
	for view := range views(text) {
		for _, s := range r.secrets {
			for i := 0; ; i += len(s.text) {
				next := strings.Index(view.text[i:], s.text)
				if next < 0 {
					break
				}
				i += next
				found = append(found, part{view.origin(i), view.origin(i + len(s.text)), s.replacement})
			}
		}
	}
	if found == nil {
		return text
	}
	slices.SortStableFunc(found, func(a, b part) int { return cmp.Or(a.from-b.from, b.to-a.to) })
	var b strings.Builder
	last := 0
	for i := 0; i < len(found); {
		p := found[i]
		for i++; i < len(found) && found[i].from < p.to; i++ {
			if found[i].to > p.to { // two secrets that overlap
				p.to, p.replacement = found[i].to, redacted
			}
		}
		b.WriteString(text[last:p.from] + p.replacement)
		last = p.to
	}
	return b.String() + text[last:]
}

// views returns the text as it is, and with its escapes decoded once, twice, and so on.
func views(text string) iter.Seq[decodedText] {
	return func(yield func(decodedText) bool) {
		d := decodedText{text: text}
		for i, more := 0, true; more && i <= maxEscapes && yield(d); i++ {
			d, more = d.decode()
		}
	}
}

// redactResult removes the secrets from a result that is an error.
func (r redactor) redactResult(result *tools.Result) {
	for i := range result.Content {
		c := &result.Content[i]
		for _, text := range []*string{&c.Text, &c.URI, &c.MediaType, &c.Title, &c.Description} {
			*text = r.redact(*text)
		}
	}
	result.Structured = r.redactJSON(result.Structured)
}

// redactJSON returns JSON without secrets in its strings, numbers and names.
func (r redactor) redactJSON(data json.RawMessage) json.RawMessage {
	if value, err := tools.DecodeJSON(data); err == nil {
		if encoded, err := tools.EncodeJSON(r.redactValue(value)); err == nil {
			return bytes.TrimSpace(encoded)
		}
	}
	return data
}

// redactValue returns a JSON value without secrets in its strings, numbers and names.
func (r redactor) redactValue(value any) any {
	switch v := value.(type) {
	case string:
		return r.replace(v)
	case json.Number:
		if text := r.replace(v.String()); text != v.String() {
			return text
		}
	case []any:
		for i := range v {
			v[i] = r.redactValue(v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, member := range v {
			out[r.replace(name)] = r.redactValue(member)
		}
		return out
	}
	return value
}

const (
	redacted  = "(hidden)"
	minSecret = 8 // bytes; a shorter text occurs in too many other texts
)

// excerpt returns the first limit bytes of an untrusted text, without secrets. The cut may divide a secret, so excerpt
// removes what may be the start of one.
func (r redactor) excerpt(text string, limit int) string {
	if len(text) <= limit {
		return r.redact(text)
	}
	text = r.redact(text[:limit])
	text = text[:len(text)-len(cutEscape.FindString(text))]
	end := len(text) // where the start of a secret begins
	for view := range views(text) {
		for _, s := range r.secrets {
			for n := min(len(s.text)-1, len(view.text)); n > 0; n-- {
				if strings.HasSuffix(view.text, s.text[:n]) {
					end = min(end, view.origin(len(view.text)-n))
					break
				}
			}
		}
	}
	return text[:end]
}

// newRedactors returns a redactor of all values in a server's headers, environment and URLs, and one of those that are
// secret by their name or form. Texts that describe the server need the latter: they often contain the other values,
// such as a region.
func newRedactors(s Server) (all, secrets redactor) {
	return newRedactor(s, func(_, _ string) bool { return true }), newRedactor(s, isSecret)
}

// newRedactor returns a redactor for the URLs in a server's settings, and for those values of its headers and its
// environment for which isSecret returns true. In the environment it leaves out paths, and adds the passwords within
// values whatever isSecret returns.
func newRedactor(s Server, isSecret func(name, value string) bool) redactor {
	replacements := map[string]string{}
	add := func(text string) {
		for _, part := range append(strings.Split(text, "\n"), text) { // long keys are often printed by line
			for view := range views(strings.TrimSpace(part)) { // a server may print it without its escapes
				if len(view.text) >= minSecret {
					inQuery := strings.ReplaceAll(view.text, " ", "+")
					for _, form := range []string{view.text, inQuery, latin1(view.text)} {
						replacements[form] = redacted
					}
				}
			}
		}
	}
	for name, text := range s.Headers {
		if !isSecret(name, text) {
			continue
		}
		add(text)
		scheme, key, _ := strings.Cut(text, " ") // the key in "Bearer KEY"
		add(key)
		if account, err := base64.StdEncoding.DecodeString(key); err == nil && strings.EqualFold(scheme, "basic") {
			_, password, _ := strings.Cut(string(account), ":")
			add(string(account))
			add(password)
		}
	}
	for name, text := range s.Env {
		if !arePaths(text) {
			if isSecret(name, text) {
				add(text)
			}
			for _, password := range passwordsOf(text) {
				add(password)
			}
		}
	}
	for _, text := range append([]string{s.URL}, s.Args...) {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" {
			continue
		}
		for _, form := range []string{text, u.String(), u.Redacted(), withStars(u)} {
			for view := range views(form) {
				replacements[view.text] = u.Scheme + "://" + u.Host
			}
		}
		for _, part := range secretsOf(u) {
			add(part)
		}
	}
	var r redactor
	longestFirst := func(a, b string) int { return cmp.Or(len(b)-len(a), cmp.Compare(a, b)) }
	for _, text := range slices.SortedFunc(maps.Keys(replacements), longestFirst) {
		r.secrets = append(r.secrets, secret{text, replacements[text]})
	}
	return r
}

// secretName matches the names of variables and headers whose values are secrets.
var secretName = regexp.MustCompile(`(?i)(?:` + tools.SecretWords + `|key|dsn|creds?|(?:^|[_-])(?:auth|pat|pw))[_\d]*$`)

var (
	alphanumeric = regexp.MustCompile(`[A-Za-z0-9]{16,}`)
	plainWord    = regexp.MustCompile(`(?:^|[^A-Za-z0-9])[A-Z]?(?:[a-z]{3,}|[A-Z]{3,})(?:$|[^A-Za-z0-9])`)
)

// isSecret reports whether the value of a variable or header is a secret by its name, or by its form: it has at least
// 16 letters and digits in a row, both kinds among them, or at least 16 characters with a letter and a digit and no
// plain word.
func isSecret(name, value string) bool {
	mixed := func(text string) bool {
		return len(text) >= 16 &&
			strings.ContainsFunc(text, unicode.IsDigit) && strings.ContainsFunc(text, unicode.IsLetter)
	}
	return secretName.MatchString(name) || mixed(value) && !plainWord.MatchString(value) ||
		slices.ContainsFunc(alphanumeric.FindAllString(value, -1), mixed)
}

// passwordIn matches the passwords in the addresses of databases: in user:password@host, with or without a scheme, and
// in password=…, perhaps in quotes or braces.
var passwordIn = regexp.MustCompile(`(?i)^(?:[\w+.:-]+://)?[^\s:/@]*:([^\s?]+)@|` +
	`(?:password|passwd|pwd|secret|token|key|sig)\s*=\s*('[^']+'|"[^"]+"|\{[^}]+\}|[^\s;&]+)`)

// passwordsOf returns the passwords in a value of the environment that is an address.
func passwordsOf(text string) []string {
	if u, err := url.Parse(text); err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" {
		return secretsOf(u)
	}
	var out []string
	for _, m := range passwordIn.FindAllStringSubmatch(text, -1) {
		upToComma, _, _ := strings.Cut(m[2], ",")
		for _, password := range []string{m[1], m[2], upToComma} {
			out = append(out, password, strings.Trim(password, `'"{}`))
		}
	}
	return out
}

// arePaths reports whether a text is the path of a file in a directory that exists, or a list of such paths. A key may
// begin with a slash, too.
func arePaths(text string) bool {
	list := filepath.SplitList(text)
	return len(list) > 0 && !slices.ContainsFunc(list, func(path string) bool {
		_, err := os.Stat(path)
		if dir := filepath.Dir(path); err != nil && dir != "/" { // the server may make the file later
			_, err = os.Stat(dir)
		}
		return !filepath.IsAbs(path) || err != nil
	})
}

// withStars returns the URL as net/http prints it in errors.
func withStars(u *url.URL) string {
	password, ok := u.User.Password()
	if !ok {
		return u.String()
	}
	name := u.User.Username()
	return strings.Replace(u.String(), url.UserPassword(name, password).String()+"@", url.User(name).String()+":***@",
		1)
}

// secretsOf returns the parts of a URL that may be secrets.
func secretsOf(u *url.URL) []string {
	parts := []string{u.RawQuery, u.RequestURI()}
	if u.RequestURI() == u.Path {
		parts = parts[:1] // a path without a query occurs in many texts
	}
	if password, ok := u.User.Password(); ok {
		parts = append(parts, password)
	} else {
		parts = append(parts, u.User.Username())
	}
	for _, values := range u.Query() {
		parts = append(parts, values...)
	}
	return parts
}

// redactUpstream applies redactError to a *tools.UpstreamError in place.
func (r redactor) redactUpstream(err error) error {
	if ue, ok := errors.AsType[*tools.UpstreamError](err); ok && ue.Err != nil {
		ue.Err = r.redactError(ue.Err)
	}
	return err
}

// redactError returns an error whose text is that of err, but without secrets, printable, and truncated to maxMessage
// bytes. It returns err itself if that changes nothing.
func (r redactor) redactError(err error) error {
	if err == nil {
		return nil
	}
	if safe := text.Printable(text.Truncate(r.redact(err.Error()), maxMessage)); safe != err.Error() {
		return errors.New(safe)
	}
	return err
}

// aboutOf returns the server's description of itself, from its response to initialize. It is redacted,
// because the server knows the secrets in its settings.
func (r redactor) aboutOf(response *sdk.InitializeResult) tools.About {
	if response == nil || response.ServerInfo == nil {
		return tools.About{}
	}
	info := response.ServerInfo
	return tools.About{
		Version: r.replace(info.Name + " " + info.Version), Title: r.replace(cmp.Or(info.Title, info.Name)),
		Description: r.replace(info.Description), Instructions: r.replace(response.Instructions),
	}.Sanitize()
}
