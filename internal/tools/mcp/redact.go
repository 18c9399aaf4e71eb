package mcp

import (
	"cmp"
	"errors"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/internal/tools"
)

// A redactor removes the secrets in a server's settings from texts: errors are passed to programs, and the
// server's output is logged. It does not apply to results of tools.
type redactor struct{ secrets *strings.Replacer }

// sessionID matches the secret id of an HTTP session in errors of the SDK.
var sessionID = regexp.MustCompile(` \(session ID: [^)]*\)`)

// redact returns the text without secrets.
func (v redactor) redact(text string) string {
	return sessionID.ReplaceAllString(v.secrets.Replace(text), "")
}

const (
	redacted  = "(hidden)"
	minSecret = 8 // bytes; a shorter text occurs in too many words
)

func newRedactor(s Server) redactor {
	hide := map[string]string{}
	secret := func(text string) {
		if len(text) >= minSecret {
			hide[text] = redacted
		}
	}
	for _, text := range s.Headers {
		secret(text)
		_, key, _ := strings.Cut(text, " ") // of "Bearer KEY"
		secret(key)
	}
	for _, text := range s.Env {
		if !filepath.IsAbs(text) {
			secret(text)
		}
	}
	for _, text := range append([]string{s.URL}, s.Args...) {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" {
			continue
		}
		place := u.Scheme + "://" + u.Host
		for _, form := range []string{text, u.String(), u.Redacted(), withStars(u)} {
			hide[form] = place
		}
		for _, part := range secretsOf(u) {
			secret(part)
		}
	}
	var pairs []string
	// The longest first: the replacer uses the first pair that matches.
	longestFirst := func(a, b string) int { return cmp.Or(len(b)-len(a), cmp.Compare(a, b)) }
	for _, text := range slices.SortedFunc(maps.Keys(hide), longestFirst) {
		pairs = append(pairs, text, hide[text])
	}
	return redactor{strings.NewReplacer(pairs...)}
}

// withStars returns the address in the form of net/http's errors.
func withStars(u *url.URL) string {
	password, has := u.User.Password()
	if !has {
		return u.String()
	}
	name := u.User.Username()
	return strings.Replace(u.String(), url.UserPassword(name, password).String()+"@", url.User(name).String()+":***@",
		1)
}

// secretsOf returns the parts of an address that may be secrets.
func secretsOf(u *url.URL) []string {
	parts := []string{u.RawQuery, u.RequestURI()}
	if u.RequestURI() == u.Path {
		parts = parts[:1] // a mere path occurs in many texts
	}
	if password, has := u.User.Password(); has {
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
func (v redactor) redactUpstream(err error) error {
	if ue, ok := errors.AsType[*tools.UpstreamError](err); ok && ue.Err != nil {
		ue.Err = v.redactError(ue.Err)
	}
	return err
}

// redactError returns err itself if it contains no secret.
func (v redactor) redactError(err error) error {
	if err == nil {
		return nil
	}
	if text := v.redact(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}

// aboutOf returns the server's description of itself, from its response to initialize. It is redacted, as
// the server knows secrets of its settings.
func (v redactor) aboutOf(response *sdk.InitializeResult) tools.About {
	if response == nil || response.ServerInfo == nil {
		return tools.About{}
	}
	info, hide := response.ServerInfo, v.redact
	return tools.About{
		Version: hide(info.Name + " " + info.Version), Title: hide(cmp.Or(info.Title, info.Name)),
		Description: hide(info.Description), Instructions: hide(response.Instructions),
	}.Sanitize()
}
