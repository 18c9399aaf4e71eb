package page

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	stdpath "path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/client"
)

// session is what a browser's cookie holds, encrypted with a key that only this process has. After a restart people log
// in again.
type session struct {
	Token   string    `json:"t"`
	Name    string    `json:"n"` // name of the token
	Tenant  string    `json:"w"`
	Scopes  []string  `json:"s"`
	CSRF    string    `json:"c"` // each form contains it
	Expires time.Time `json:"e"`
}

const (
	sessionTime  = 12 * time.Hour
	codeTime     = time.Hour
	maxToken     = 2048   // bytes
	maxCodes     = 1000   // unused codes that a process keeps
	maxEnded     = 10_000 // ended sessions that a process keeps
	sessionName  = "codefleet_session"
	messageName  = "codefleet_message"
	messageTime  = time.Minute
	maxLoginBody = 16 << 10 // bytes
)

// keys encrypts cookies.
type keys struct{ aead cipher.AEAD }

func newKeys() keys {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the size of the key is constant
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // the size of a block is constant
	}
	return keys{aead}
}

// seal encrypts v for the cookie with the given name.
func (k keys) seal(name string, v any) (string, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	sealed := k.aead.Seal(nil, nil, data, []byte(name)) //nolint:gosec // the cipher chooses the nonce
	return base64.RawURLEncoding.EncodeToString(sealed), nil
}

// open decrypts a cookie of r into v. It reports whether r has the cookie, and this process sealed it.
func (k keys) open(r *http.Request, name string, v any) bool {
	c, err := r.Cookie(name)
	if err != nil {
		return false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return false
	}
	data, err := k.aead.Open(nil, nil, sealed, []byte(name))
	return err == nil && json.Unmarshal(data, v) == nil
}

// codes are the one-time codes of page links.
type codes struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]code
}

type code struct {
	token   string
	expires time.Time
}

// Code returns a code that logs its holder in with the token, once and within an hour. The page link is
// /ui/login?code=CODE.
func (p *Page) Code(token string) string { return p.codes.add(token, time.Now()) }

func (c *codes) add(token string, now time.Time) string {
	text := rand.Text()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[[sha256.Size]byte]code{}
	}
	var oldest [sha256.Size]byte
	for sum, k := range c.known {
		switch first, ok := c.known[oldest]; {
		case now.After(k.expires):
			delete(c.known, sum)
		case !ok || k.expires.Before(first.expires):
			oldest = sum // the oldest code that is still valid
		}
	}
	if len(c.known) >= maxCodes {
		delete(c.known, oldest)
	}
	c.known[sha256.Sum256([]byte(text))] = code{token, now.Add(codeTime)}
	return text
}

// lookup returns the token of a code, which stays valid.
func (c *codes) lookup(text string, now time.Time) (token string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.known[sha256.Sum256([]byte(text))]
	return k.token, ok && now.Before(k.expires)
}

// redeem returns the token of a code, which is then used up.
func (c *codes) redeem(text string, now time.Time) (token string, ok bool) {
	sum := sha256.Sum256([]byte(text))
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.known[sum]
	delete(c.known, sum)
	return k.token, ok && now.Before(k.expires)
}

// ended are the sessions that a logout or another login ended before they expired. Copies of their cookies are not
// accepted. There are at most maxEnded: to add another one, the one that expires first is dropped.
type ended struct {
	mu      sync.Mutex
	expires map[string]time.Time // by CSRF code
}

func (e *ended) add(s session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.expires == nil {
		e.expires = map[string]time.Time{}
	}
	if len(e.expires) >= maxEnded {
		e.drop()
	}
	e.expires[s.CSRF] = s.Expires
}

// drop removes the session that expires first.
func (e *ended) drop() {
	first, expires := "", time.Time{}
	for code, at := range e.expires {
		if first == "" || at.Before(expires) {
			first, expires = code, at
		}
	}
	delete(e.expires, first)
}

func (e *ended) has(s session) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.expires[s.CSRF]
	return ok
}

// session returns the session of a request, if its cookie is valid.
func (p *Page) session(r *http.Request) (s session, ok bool) {
	ok = p.keys.open(r, sessionName, &s) && time.Now().Before(s.Expires) && !p.ended.has(s)
	return s, ok
}

// endSession ends the session of a request, if it has one, and removes the message that its next page would show.
func (p *Page) endSession(w http.ResponseWriter, r *http.Request) {
	if s, ok := p.session(r); ok {
		p.ended.add(s)
	}
	p.setCookie(w, r, sessionName, nil, 0)
	p.setCookie(w, r, messageName, nil, 0)
}

// setCookie sets a cookie to the encrypted v, or removes it if age is 0. Browsers send it over HTTPS only if r came
// over HTTPS, to this process or, as its header says, to a proxy.
func (p *Page) setCookie(w http.ResponseWriter, r *http.Request, name string, v any, age time.Duration) {
	value, err := p.keys.seal(name, v)
	if err != nil || age <= 0 {
		value, age = "", -time.Second
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure if the fleet is served over HTTPS
		Name: name, Value: value, Path: p.o.Prefix + root, MaxAge: int(age / time.Second),
		HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
	})
}

// getLogin shows the form for a token, or for a page link the question whether to log in.
func (p *Page) getLogin(w http.ResponseWriter, r *http.Request) {
	next := r.URL.Query().Get("next")
	if text := r.URL.Query().Get("code"); text != "" {
		p.confirm(w, r, text, next)
		return
	}
	if _, err := p.whoAmI(r.Context(), ""); err == nil { // the fleet does not authenticate
		p.login(w, r, "", next)
		return
	}
	p.showLogin(w, r, http.StatusOK, loginData{Next: next})
}

// confirm asks whether to log in with the code of a page link. Without the question, the sender of a link could log
// another person in to the sender's tenant, and read what that person submits.
func (p *Page) confirm(w http.ResponseWriter, r *http.Request, text, next string) {
	token, ok := p.codes.lookup(text, time.Now())
	if !ok {
		p.showLogin(w, r, http.StatusUnauthorized, loginData{Next: next, Error: usedLink})
		return
	}
	id, ok := p.identify(w, r, token, next)
	if !ok {
		return
	}
	d := loginData{Next: next, Code: text, Host: r.Host, Name: id.Name, Tenant: id.Tenant}
	if s, ok := p.session(r); ok {
		d.Old = &s
	}
	p.showLogin(w, r, http.StatusOK, d)
}

const usedLink = "The link has been used, or is older than an hour. Print a new one with: codefleet page"

func (p *Page) postLogin(w http.ResponseWriter, r *http.Request) {
	if err := sameOrigin.Check(r); err != nil {
		http.Error(w, "the form was sent by another site", http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxLoginBody)
	token, next := strings.TrimSpace(r.PostFormValue("token")), r.PostFormValue("next")
	text := r.PostFormValue("code")
	if text == "" {
		p.login(w, r, token, next)
		return
	}
	token, ok := p.codes.lookup(text, time.Now())
	if ok {
		id, accepted := p.identify(w, r, token, next)
		if !accepted {
			return // the code is still valid: perhaps the fleet does not respond now
		}
		if _, ok = p.codes.redeem(text, time.Now()); ok {
			p.beginSession(w, r, token, id, next)
			return
		}
	}
	p.showLogin(w, r, http.StatusUnauthorized, loginData{Next: next, Error: usedLink})
}

// login begins the session of a token, if the fleet accepts it.
func (p *Page) login(w http.ResponseWriter, r *http.Request, token, next string) {
	if id, ok := p.identify(w, r, token, next); ok {
		p.beginSession(w, r, token, id, next)
	}
}

// beginSession sets the session of a token and its holder, and goes to the next page.
func (p *Page) beginSession(w http.ResponseWriter, r *http.Request, token string, id client.Identity, next string) {
	s := session{
		Token: token, Name: id.Name, Tenant: id.Tenant, Scopes: id.Scopes, CSRF: rand.Text(),
		Expires: time.Now().Add(sessionTime),
	}
	p.endSession(w, r)
	p.setCookie(w, r, sessionName, s, sessionTime)
	http.Redirect(w, r, p.local(next, s), http.StatusSeeOther) //nolint:gosec // local
}

// identify returns the holder of a token. If the fleet does not accept the token, it shows the login with the reason.
func (p *Page) identify(w http.ResponseWriter, r *http.Request, token, next string) (client.Identity, bool) {
	id, err := p.whoAmI(r.Context(), token)
	if err == nil {
		return id, true
	}
	status, message := http.StatusServiceUnavailable, "The fleet does not respond. Try again."
	refused := new(client.APIError)
	if errors.As(err, &refused) && refused.Status < http.StatusInternalServerError {
		status, message = http.StatusUnauthorized, "The fleet does not know this token."
	}
	p.showLogin(w, r, status, loginData{Next: next, Error: message})
	return id, false
}

func (p *Page) whoAmI(ctx context.Context, token string) (client.Identity, error) {
	if len(token) > maxToken {
		return client.Identity{}, &client.APIError{Status: http.StatusUnauthorized}
	}
	c, err := p.client(ctx, token)
	if err != nil {
		return client.Identity{}, err
	}
	return c.WhoAmI(ctx)
}

func (p *Page) postLogout(w http.ResponseWriter, r *http.Request) {
	if err := sameOrigin.Check(r); err != nil {
		http.Error(w, "the form was sent by another site", http.StatusForbidden)
		return
	}
	p.endSession(w, r)
	p.redirect(w, r, "login")
}

// toLogin redirects a request for a whole page to the login, which leads back to the page. Any other request, such as
// that for a part of a page, gets the status 401, after which the script loads the whole page again.
func (p *Page) toLogin(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.Header.Get("HX-Request") != "" || r.Header.Get("Sec-Fetch-Dest") == "empty" {
		http.Error(w, "log in again", http.StatusUnauthorized)
		return
	}
	next := p.o.Prefix + r.URL.RequestURI()
	p.redirect(w, r, "login?next="+url.QueryEscape(next))
}

// local returns next if it is a page of this fleet, and else the first page of a session.
func (p *Page) local(next string, s session) string {
	base := p.o.Prefix + root + "/"
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || strings.Contains(next, `\`) {
		return base + s.first()
	}
	page := stdpath.Clean(u.Path) // to which the server redirects the browser
	if !strings.HasPrefix(page, base) || strings.HasPrefix(page, base+"login") {
		return base + s.first()
	}
	return u.RequestURI()
}

// first returns the path of the page with which a session begins. Operators without a tenant have no tasks.
func (s session) first() string {
	if s.Tenant == "" && slices.Contains(s.Scopes, "operator") {
		return "fleet"
	}
	return "tasks"
}

// redirect goes to a path below the page.
func (p *Page) redirect(w http.ResponseWriter, r *http.Request, path string) {
	http.Redirect(w, r, p.o.Prefix+root+"/"+path, http.StatusSeeOther) //nolint:gosec // below the page
}

// sameOrigin refuses forms that another site's page has sent.
var sameOrigin = http.NewCrossOriginProtection()

// form returns the handler of an action. Its form must come from this origin and contain the session's CSRF code.
func (p *Page) form(act action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, ok := p.request(w, r)
		if !ok {
			return
		}
		if err := q.parseForm(); err != nil {
			q.fail(err)
			return
		}
		next, message, err := act(q)
		if err != nil {
			q.fail(err)
			return
		}
		if message != "" {
			p.setCookie(w, r, messageName, message, messageTime)
		}
		p.redirect(w, r, next)
	}
}

// formValues are the values of a form that parseForm has accepted.
type formValues struct{ url.Values }

const (
	maxForm   = 2 << 20  // bytes of a form: a program and its inputs
	maxUpload = 20 << 20 // bytes of all files of a form
)

var (
	errForged    = &pageError{403, "The form is not from this page, or is too old.", "Load the page again."}
	errReadOnly  = &pageError{403, "This page is read-only.", "The operator has set page.read_only."}
	errNoPage    = &pageError{404, "There is no such page.", ""}
	errNoTask    = &pageError{400, "No task is selected.", "Select one or more tasks first."}
	errManyTasks = &pageError{400, "Too many tasks are selected.", fmt.Sprintf("Select at most %d at once.", maxBulk)}
	errTwice     = &pageError{400, "The form has a field twice.", "Load the page again."}
	errTooLarge  = &pageError{413, "The form is too large, or damaged.", "It has at most 2 MiB, and its files 20 MiB."}
)

// parseForm reads the form into q.form. It refuses a form that is too large, comes from another origin, has another
// CSRF code, or has a field twice that may have only one value. If the page is read-only, it refuses every form.
func (q *request) parseForm() error {
	var err error
	if media, _, _ := mime.ParseMediaType(q.r.Header.Get("Content-Type")); media == "multipart/form-data" {
		q.r.Body = http.MaxBytesReader(q.w, q.r.Body, maxUpload+maxForm)
		err = q.r.ParseMultipartForm(maxUpload + maxForm) //nolint:gosec // the body is bounded
	} else {
		q.r.Body = http.MaxBytesReader(q.w, q.r.Body, maxForm)
		err = q.r.ParseForm()
	}
	if err != nil {
		return errTooLarge
	}
	// The time limit of the body would end an action that takes longer.
	_ = http.NewResponseController(q.w).SetReadDeadline(time.Time{})
	sent := q.r.PostForm.Get("csrf")
	if sameOrigin.Check(q.r) != nil || subtle.ConstantTimeCompare([]byte(sent), []byte(q.s.CSRF)) != 1 {
		return errForged
	}
	if q.p.o.ReadOnly {
		return errReadOnly
	}
	q.form = formValues{q.r.PostForm}
	size := 0
	for name, values := range q.form.Values {
		for _, v := range values {
			if size += len(name) + len(v); size > maxForm { // the limit of a body with files is larger
				return errTooLarge
			}
		}
		if len(values) > 1 && name != "id" && name != "scope" && !strings.HasPrefix(name, "field.") {
			return errTwice
		}
	}
	return nil
}

// files returns the files of a form, for a task. If the person has chosen none, there are none.
func (q *request) files() (list []client.File, err error) {
	if q.r.MultipartForm == nil {
		return nil, nil
	}
	size := int64(0)
	for _, h := range q.r.MultipartForm.File["files"] {
		if size += h.Size; size > maxUpload {
			return nil, errTooLarge
		}
		f, err := h.Open()
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(f)
		f.Close()
		if err != nil {
			return nil, err
		}
		content := base64.StdEncoding.EncodeToString(data)
		list = append(list, client.File{Name: h.Filename, Base64: &content})
	}
	return list, nil
}
