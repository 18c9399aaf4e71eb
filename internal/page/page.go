// Package page is the web page of a fleet: what runs and waits, each task with its output and calls, what waits for a
// person, and the tenant's workspaces, sessions, skills and tools. It is rendered on the server over the public client,
// with the token with which the person has logged in, so a page shows and does what this token may.
//
// The key type is Page. Its handler serves the paths below /ui/.
package page

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	"github.com/codefleet/codefleet/client"
)

// Options configure a Page. Fleet and Log are required.
type Options struct {
	Fleet    client.Options // the fleet, without a token
	ReadOnly bool           // show everything and change nothing
	Prefix   string         // the path under which a proxy serves the fleet, such as /codefleet; default none
	Log      *slog.Logger
}

// Page serves the web page. It is safe for concurrent use.
type Page struct {
	o     Options
	mux   *http.ServeMux
	keys  keys
	codes codes
	ended ended
	feeds feeds

	stopping context.Context //nolint:containedctx // the lifetime of the value itself
	stop     context.CancelFunc
}

//go:embed assets templates
var files embed.FS

// root is the path of the page on the fleet's HTTP interface.
const root = "/ui"

// New returns a page. Call Drain before its HTTP server shuts down.
func New(o Options) *Page {
	p := &Page{o: o, keys: newKeys()}
	p.stopping, p.stop = context.WithCancel(context.Background())
	p.feeds.byToken = map[[sha256.Size]byte]*feed{}
	p.mux = p.routes()
	return p
}

// Drain ends the streams of open pages, and makes them reconnect.
func (p *Page) Drain() { p.stop() }

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	p.mux.ServeHTTP(w, r)
}

// policy permits nothing but the page's own files. Programs' files have a stricter one: see serveContent.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func (p *Page) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+root+"/assets/{version}/{name}", p.getAsset)
	mux.HandleFunc("GET "+root+"/login", p.getLogin)
	mux.HandleFunc("POST "+root+"/login", p.postLogin)
	mux.HandleFunc("POST "+root+"/logout", p.postLogout)
	mux.HandleFunc("GET "+root+"/{$}", func(w http.ResponseWriter, r *http.Request) {
		if s, ok := p.session(r); ok {
			p.redirect(w, r, s.first())
		} else {
			p.toLogin(w, r)
		}
	})

	get := func(path string, h view) { mux.HandleFunc("GET "+root+path, p.page(h)) }
	post := func(path string, h action) { mux.HandleFunc("POST "+root+path, p.form(h)) }
	get("/live", getLive)

	get("/tasks", getTasks)
	post("/tasks", postTasks)
	get("/new", getNewTask)
	post("/new", postNewTask)
	get("/tasks/{id}", getTask)
	post("/tasks/{id}/{verb}", postTask)
	get("/tasks/{id}/stream", getTaskStream)
	get("/tasks/{id}/artifacts/{path...}", getArtifact)

	get("/inbox", getInbox)
	post("/inbox", postDecision)
	get("/dead", getDead)
	post("/dead", postDead)

	get("/workflows", getWorkflows)
	get("/workflows/{run}", getRun)
	post("/workflows/{run}/{verb}", postRun)

	get("/workspaces", getWorkspaces)
	get("/workspaces/{name}", getWorkspace)
	post("/workspaces/{name}/restore", postRestore)
	get("/workspaces/{name}/history", getHistory)
	get("/workspaces/{name}/diff", getDiff)
	get("/workspaces/{name}/files/{path...}", getFile)

	get("/sessions", getSessions)
	get("/sessions/{name}", getSession)
	post("/sessions/{name}/resume", postResume)
	get("/skills", getSkills)
	get("/skills/{name}", getSkill)
	get("/tools", getTools)
	get("/tools/{server}/{tool}", getTool)

	get("/automation", getAutomation)
	post("/automation/schedules/{name}/{verb}", postSchedule)
	get("/fleet", getFleet)
	get("/fleet/numbers", getNumbers)
	post("/fleet/{verb}", postFleet)
	get("/access", getAccess)
	post("/access/{verb}", postAccess)

	mux.HandleFunc(root+"/", p.page(func(*request) error { return errNoPage }))
	return mux
}

// assetVersion changes with any asset, so that browsers may keep each version forever.
var assetVersion = func() string {
	sum := sha256.New()
	err := fs.WalkDir(files, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := files.ReadFile(name)
		sum.Write(data)
		return err
	})
	if err != nil {
		panic(err) // the files are part of the program
	}
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:9])
}()

var assetTypes = map[string]string{
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}

func (p *Page) getAsset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	media := assetTypes[filepath.Ext(name)]
	data, err := files.ReadFile("assets/" + name)
	if err != nil || media == "" || r.PathValue("version") != assetVersion {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(data) //nolint:gosec // a file of the program
}

// request is a request of a person who has logged in.
type request struct {
	p    *Page
	w    http.ResponseWriter
	r    *http.Request
	ctx  context.Context //nolint:containedctx // the context of this request
	s    session
	c    *client.Client
	form formValues
}

// view shows something. An error that it returns before it has written anything becomes a page.
type view func(*request) error

// action changes something. It returns the path of the next page, below the root of all pages, and the message that the
// next page shows.
type action func(*request) (next, message string, err error)

// page returns the handler of a view.
func (p *Page) page(show view) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, ok := p.request(w, r)
		if !ok {
			return
		}
		if err := show(q); err != nil {
			q.fail(err)
		}
	}
}

// request returns the request of a person who has logged in. It responds to any other request with toLogin.
func (p *Page) request(w http.ResponseWriter, r *http.Request) (*request, bool) {
	s, ok := p.session(r)
	if !ok {
		p.toLogin(w, r)
		return nil, false
	}
	c, err := p.client(r.Context(), s.Token)
	if err != nil {
		http.Error(w, "the fleet's address is wrong", http.StatusInternalServerError)
		return nil, false
	}
	return &request{p: p, w: w, r: r, ctx: r.Context(), s: s, c: c}, true
}

// client returns a client of the fleet with the token of a session. It does not retry for long, because a person waits.
func (p *Page) client(ctx context.Context, token string) (*client.Client, error) {
	o := p.o.Fleet
	o.Token, o.Source, o.RetryFor = token, "codefleet/page", 3*time.Second
	return client.New(ctx, o)
}
