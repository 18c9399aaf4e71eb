package ingest

import (
	"net/http"
	"strings"
)

// pagePath is where the web page is.
const pagePath = "/ui"

// PageLink is a link that logs its holder in to the web page, once.
type PageLink struct {
	Link string `json:"link"` // relative to the fleet's URL
}

func (s *Server) toPage(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Cache-Control", "no-store")
	// The path is relative for proxies with a prefix. http.Redirect would make it absolute.
	w.Header().Set("Location", strings.TrimPrefix(pagePath, "/")+"/")
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

func (s *Server) servePage(w http.ResponseWriter, r *http.Request) error {
	s.o.Mounted.Page.ServeHTTP(w, r)
	if rec, ok := w.(*recorder); ok {
		rec.route = r.Pattern // the page's own
	}
	return nil
}

func (s *Server) postPageLink(w http.ResponseWriter, r *http.Request) error {
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return respond(w, PageLink{s.pageLink(strings.TrimSpace(token))}, nil)
}

// PageLink returns a link that logs its holder in to the web page with the token, once and within an hour. It is
// relative to the fleet's URL, and empty without a page.
func (s *Server) PageLink(token string) string {
	if s.o.Mounted.Page == nil {
		return ""
	}
	return s.pageLink(token)
}

func (s *Server) pageLink(token string) string {
	return pagePath + "/login?code=" + s.o.Mounted.Page.Code(token)
}
