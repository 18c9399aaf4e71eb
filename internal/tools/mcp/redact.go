package mcp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/tools"
)

// A redactor removes the secrets in a server's settings from texts that leave this package: errors, which
// reach programs, and the server's output, which is logged. It is not used for the results of calls that succeed.
type redactor struct {
	secrets *strings.Replacer
	texts   []string // all that secrets replaces
}

// sessionID matches the ID of an HTTP session, which is secret, in errors of the SDK.
var sessionID = regexp.MustCompile(` \(session ID: [^)]*\)`)

// redact returns the text without secrets.
func (r redactor) redact(text string) string {
	return sessionID.ReplaceAllString(r.secrets.Replace(text), "")
}

// redactResult removes the secrets from a result that is an error.
func (r redactor) redactResult(result *tools.Result) {
	for i := range result.Content {
		c := &result.Content[i]
		for _, text := range []*string{&c.Text, &c.URI, &c.Title, &c.Description} {
			*text = r.redact(*text)
		}
	}
	if value, err := tools.DecodeJSON(result.Structured); err == nil {
		if encoded, err := tools.EncodeJSON(r.redactValue(value)); err == nil {
			result.Structured = bytes.TrimSpace(encoded)
		}
	}
}

// redactValue returns a JSON value without secrets in its strings, numbers and names.
func (r redactor) redactValue(value any) any {
	switch v := value.(type) {
	case string:
		return r.secrets.Replace(v)
	case json.Number:
		if text := r.secrets.Replace(v.String()); text != v.String() {
			return text
		}
	case []any:
		for i := range v {
			v[i] = r.redactValue(v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, member := range v {
			out[r.secrets.Replace(name)] = r.redactValue(member)
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
	start := 0 // how many of the last bytes begin a secret
	for _, secret := range r.texts {
		for n := min(len(secret)-1, len(text)); n > start; n-- {
			if strings.HasSuffix(text, secret[:n]) {
				start = n
			}
		}
	}
	return text[:len(text)-start]
}

// newRedactor returns a redactor for the headers, the environment and the URLs in a server's settings.
func newRedactor(s Server) redactor {
	replacements := map[string]string{}
	secret := func(text string) {
		for _, part := range append(strings.Split(text, "\n"), text) { // long keys are often printed by line
			if part = strings.TrimSpace(part); len(part) >= minSecret {
				replacements[part] = redacted
			}
		}
	}
	for _, text := range s.Headers {
		secret(text)
		_, key, _ := strings.Cut(text, " ") // the key in "Bearer KEY"
		secret(key)
	}
	for _, text := range s.Env {
		if !arePaths(text) {
			secret(text)
		}
	}
	for _, text := range append([]string{s.URL}, s.Args...) {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" {
			continue
		}
		for _, form := range []string{text, u.String(), u.Redacted(), withStars(u)} {
			replacements[form] = u.Scheme + "://" + u.Host
		}
		for _, part := range secretsOf(u) {
			secret(part)
		}
	}
	var pairs []string
	// The longest text comes first, because the replacer uses the first pair that matches.
	longestFirst := func(a, b string) int { return cmp.Or(len(b)-len(a), cmp.Compare(a, b)) }
	for _, text := range slices.SortedFunc(maps.Keys(replacements), longestFirst) {
		pairs = append(pairs, text, replacements[text])
	}
	return redactor{strings.NewReplacer(pairs...), slices.Collect(maps.Keys(replacements))}
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
		parts = append(parts, password, url.QueryEscape(password))
	} else {
		parts = append(parts, u.User.Username())
	}
	for _, values := range u.Query() {
		for _, v := range values {
			parts = append(parts, v, url.QueryEscape(v))
		}
	}
	return parts
}

// redactUpstream redacts a *tools.UpstreamError in place.
func (r redactor) redactUpstream(err error) error {
	if ue, ok := errors.AsType[*tools.UpstreamError](err); ok && ue.Err != nil {
		ue.Err = r.redactError(ue.Err)
	}
	return err
}

// redactError returns an error with the text of err without secrets, or err itself if it contains none.
func (r redactor) redactError(err error) error {
	if err == nil {
		return nil
	}
	if text := r.redact(err.Error()); text != err.Error() {
		return errors.New(text)
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
		Version: r.redact(info.Name + " " + info.Version), Title: r.redact(cmp.Or(info.Title, info.Name)),
		Description: r.redact(info.Description), Instructions: r.redact(response.Instructions),
	}.Sanitize()
}
