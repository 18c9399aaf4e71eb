package page

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/form"
	"github.com/codefleet/codefleet/internal/text"
)

// frame is what every page shows around its content.
type frame struct {
	Title, Section string
	Prefix, Assets string
	Self           string // the URL of this page, for its live parts
	CSRF           string
	Name, Tenant   string
	ReadOnly       bool
	Operator       bool
	Approver       bool
	Message        string // what the previous form did
	Live           bool   // whether parts of the page are refreshed when the fleet changes
	Data           any
}

// pageError is an error that a page explains.
type pageError struct {
	status        int
	message, hint string
}

func (e *pageError) Error() string { return e.message }

// show renders a page.
func (q *request) show(name, title string, data any) error {
	return q.render(http.StatusOK, name, title, data)
}

func (q *request) render(status int, name, title string, data any) error {
	f := frame{
		Title: title, Section: name, Prefix: q.p.o.Prefix + root, Assets: q.p.assets(),
		Self: q.p.o.Prefix + q.r.URL.RequestURI(), CSRF: q.s.CSRF, Name: q.s.Name, Tenant: q.s.Tenant,
		ReadOnly: q.p.o.ReadOnly, Operator: slices.Contains(q.s.Scopes, "operator"),
		Approver: slices.Contains(q.s.Scopes, "approve"), Live: true, Data: data,
	}
	if q.r.Header.Get("HX-Request") == "" && q.p.keys.open(q.r, messageName, &f.Message) {
		q.p.setCookie(q.w, q.r, messageName, nil, 0)
	}
	return write(q.w, status, name, f)
}

// write renders a template as the whole response.
func write(w http.ResponseWriter, status int, name string, f frame) error {
	var b bytes.Buffer
	if err := templates[name].ExecuteTemplate(&b, "layout", f); err != nil {
		return fmt.Errorf("render %s: %w", name, err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
	return nil
}

// loginData is what the login shows: if there is a code, the question whether to log in with the code, or else the form
// for a token.
type loginData struct {
	Next, Error  string
	Code, Host   string
	Name, Tenant string   // name and tenant of the code's token
	Old          *session // the session that the login would end; nil if there is none
}

func (p *Page) showLogin(w http.ResponseWriter, r *http.Request, status int, d loginData) {
	f := frame{Title: "Log in", Section: "login", Prefix: p.o.Prefix + root, Assets: p.assets(), Data: d}
	if err := write(w, status, "login", f); err != nil {
		p.o.Log.ErrorContext(r.Context(), "page not rendered", "error", err)
		http.Error(w, "the page has a bug; the fleet's log has the details", http.StatusInternalServerError)
	}
}

// fail shows an error as a page. If the fleet no longer accepts the token, it goes to the login instead.
func (q *request) fail(err error) {
	var data struct{ Message, Cause, Hint, Code string }
	status := http.StatusInternalServerError
	var refused *client.APIError
	var own *pageError
	switch {
	case q.ctx.Err() != nil:
		return // the browser has disconnected
	case errors.As(err, &own):
		status, data.Message, data.Hint = own.status, own.message, own.hint
	case errors.As(err, &refused) && refused.Status == http.StatusUnauthorized:
		q.p.setCookie(q.w, q.r, sessionName, nil, 0) // the token was revoked
		q.p.toLogin(q.w, q.r)
		return
	case errors.As(err, &refused):
		status, data.Message, data.Cause = refused.Status, refused.Message, refused.Cause
		data.Hint, data.Code = refused.Hint, refused.Code
	default:
		data.Message = "The page has a bug; the fleet's log has the details."
		q.p.o.Log.ErrorContext(q.ctx, "page failed", "route", q.r.Pattern, "error", err)
	}
	if err := q.render(status, "error", "Error", data); err != nil {
		q.p.o.Log.ErrorContext(q.ctx, "error page not rendered", "error", err)
	}
}

// assets returns the path of the page's own files.
func (p *Page) assets() string { return p.o.Prefix + root + "/assets/" + assetVersion }

// path returns a path below the page: its segments, escaped.
func path(segments ...string) string {
	escaped := make([]string, len(segments))
	for i, s := range segments {
		escaped[i] = url.PathEscape(s)
	}
	return strings.Join(escaped, "/")
}

// filePath returns the escaped path of a file. It keeps slashes.
func filePath(p string) string { return path(strings.Split(p, "/")...) }

// askingStep is a step that asks. It has the frame, because the template of the step's form uses the frame's fields.
type askingStep struct {
	frame
	RunID string
	Step  stepRow
}

var functions = template.FuncMap{
	"path":  path,
	"file":  filePath,
	"ago":   func(t time.Time) string { return ago(time.Since(t)) },
	"stamp": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"iso":   func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	"bytes": byteSize[int64],
	"size":  byteSize[int],
	"ms":    milliseconds,

	"seconds": func(s float64) string { return milliseconds(1000 * s) },
	"json":    indented,
	"short":   func(s string) string { return s[:min(len(s), 8)] },
	"join":    strings.Join,
	"count":   text.Count[int],

	"newKey": rand.Text,
	"asks":   func(f frame, runID string, row stepRow) any { return askingStep{f, runID, row} },
	"before": func(generation int64) int64 { return generation - 1 },

	"isDefault": isDefault,
}

// isDefault reports whether a choice is the default of its field, or is in the default of a list.
func isDefault(f form.Field, choice string) bool {
	list, _ := f.Default.([]any)
	return f.Default == any(choice) || slices.Contains(list, any(choice))
}

func ago(d time.Duration) string {
	switch {
	case d < 0:
		return "in " + strings.TrimSuffix(ago(-max(d, -math.MaxInt64)), " ago")
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}

func byteSize[T int | int64](n T) string {
	switch f := float64(n); {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1000*1000:
		return fmt.Sprintf("%.1f kB", f/1e3)
	case n < 1000*1000*1000:
		return fmt.Sprintf("%.1f MB", f/1e6)
	default:
		return fmt.Sprintf("%.1f GB", f/1e9)
	}
}

func milliseconds(ms float64) string {
	switch {
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 10_000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return (time.Duration(ms) * time.Millisecond).Round(100 * time.Millisecond).String()
}

// indented returns JSON with line breaks, unless they make it much larger. It decodes no numbers, so that large
// integers keep all digits.
func indented(data json.RawMessage) string {
	return string(text.IndentModerately(data, "  ", 64<<10))
}

// templates has the template set of each page: the layout, the parts, and the page.
var templates = func() map[string]*template.Template {
	base := template.New("").Funcs(functions)
	template.Must(base.ParseFS(files, "templates/layout.html", "templates/parts.html"))
	pages, err := files.ReadDir("templates")
	if err != nil {
		panic(err) // the files are part of the program
	}
	all := map[string]*template.Template{}
	for _, f := range pages {
		if f.Name() == "layout.html" || f.Name() == "parts.html" {
			continue
		}
		set := template.Must(template.Must(base.Clone()).ParseFS(files, "templates/"+f.Name()))
		all[strings.TrimSuffix(f.Name(), ".html")] = set
	}
	return all
}()
