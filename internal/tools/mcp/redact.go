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

// A veil hides in texts what the settings tell a server in confidence: errors go to programs, and what
// a server writes goes into the log. The answers of tools are not its business.
type redactor struct{ secrets *strings.Replacer }

// sessionID is how the SDK shows the key to a session over HTTP.
var sessionID = regexp.MustCompile(` \(session ID: [^)]*\)`)

// Replace is the text without what nobody may know.
func (v redactor) redact(text string) string {
	return sessionID.ReplaceAllString(v.secrets.Replace(text), "")
}

const (
	redacted  = "(hidden)"
	minSecret = 8 // bytes; what is shorter is in too many words
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
		_, key, _ := strings.Cut(text, " ") // Bearer KEY
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
	for _, text := range slices.SortedFunc(maps.Keys(hide), func(a, b string) int { return cmp.Or(len(b)-len(a), cmp.Compare(a, b)) }) {
		pairs = append(pairs, text, hide[text]) // the longest first: at one place, the first that fits is taken
	}
	return redactor{strings.NewReplacer(pairs...)}
}

// withStars is the address as errors of net/http have it.
func withStars(u *url.URL) string {
	password, has := u.User.Password()
	if !has {
		return u.String()
	}
	return strings.Replace(u.String(), url.UserPassword(u.User.Username(), password).String()+"@", url.User(u.User.Username()).String()+":***@", 1)
}

// secretsOf are the parts of an address that may be keys.
func secretsOf(u *url.URL) []string {
	parts := []string{u.RawQuery, u.RequestURI()}
	if u.RequestURI() == u.Path {
		parts = parts[:1] // a path by itself is in many texts
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

// error hides what an *tools.UpstreamError says.
func (v redactor) redactUpstream(err error) error {
	if ue, ok := errors.AsType[*tools.UpstreamError](err); ok && ue.Err != nil {
		ue.Err = v.redactError(ue.Err)
	}
	return err
}

// hidden is the same error, in other words where it has to be.
func (v redactor) redactError(err error) error {
	if err == nil {
		return nil
	}
	if text := v.redact(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}

// aboutOf is what a server says of itself in its answer to initialize. It has been told keys of the settings, and may say them.
func (v redactor) aboutOf(answer *sdk.InitializeResult) tools.About {
	if answer == nil || answer.ServerInfo == nil {
		return tools.About{}
	}
	info, hide := answer.ServerInfo, v.redact
	return tools.About{
		Version: hide(info.Name + " " + info.Version), Title: hide(cmp.Or(info.Title, info.Name)),
		Description: hide(info.Description), Instructions: hide(answer.Instructions),
	}.Sanitize()
}
