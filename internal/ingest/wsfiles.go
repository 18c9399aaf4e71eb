package ingest

import (
	"archive/tar"
	"archive/zip"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
)

// generationHeader says which version an answer is about.
const generationHeader = "Codefleet-Generation"

// getFiles lists the paths of a version. Its ETag is the version's.
func (s *Server) getFiles(w http.ResponseWriter, r *http.Request) error {
	ref, generation, err := s.at(r)
	if err != nil {
		return err
	}
	info, err := history.ReadInfo(r.Context(), s.o.Workspaces.Repo(), ref)
	if err != nil {
		return err
	}
	h := w.Header()
	if generation == 0 || generation == info.Generation {
		generation = info.Generation
		h.Set("ETag", strconv.Quote(cmp.Or(info.Commit, "none")))
		h.Set(generationHeader, strconv.FormatInt(generation, 10))
		if r.Header.Get("If-None-Match") == h.Get("ETag") {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	h.Set(generationHeader, strconv.FormatInt(generation, 10))
	var list []state.FileInfo
	if generation != 0 && (info.Files > 0 || generation != info.Generation) {
		if list, err = s.o.Workspaces.List(r.Context(), ref, generation, r.URL.Query().Get("dir")); err != nil {
			return err
		}
	}
	writeList(w, list)
	return nil
}

// getFile sends one file for keeping, never for showing: it is whatever a program wrote.
func (s *Server) getFile(w http.ResponseWriter, r *http.Request) error {
	ref, generation, err := s.at(r)
	if err != nil {
		return err
	}
	name := r.PathValue("path")
	if err := checkName(name); err != nil {
		return err
	}
	f, info, err := history.Open(r.Context(), s.o.Workspaces.Repo(), ref, generation, name)
	if errors.Is(err, state.ErrNotFound) {
		return unknownFile(ref, name)
	}
	if err != nil {
		return err
	}
	h := w.Header()
	asDownload(h, cmp.Or(mime.TypeByExtension(path.Ext(name)), "application/octet-stream"), path.Base(name))
	h.Set("ETag", strconv.Quote(info.ETag))
	if strings.Count(r.Header.Get("Range"), ",") >= mostRanges {
		r.Header.Del("Range")
	}
	http.ServeContent(patiently(w, s.o.Limits.BodyTime), r, "", info.Time, f)
	return nil
}

// mostRanges is how many parts of a file one request may ask for; for more it gets the whole file.
// Each may mean a request of some MiB to the object store.
const mostRanges = 8

// asDownload marks an answer that is content of a stranger: to be saved, and to be taken for nothing
// else than it says.
func asDownload(h http.Header, mediaType, name string) {
	h.Set("Content-Type", safeType(mediaType))
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Cache-Control", "private, no-cache")
}

func unknownFile(ref state.Ref, name string) error {
	e := apierror.New(errcode.UnknownFile, "the workspace %s has no file %q", ref.Workspace, name)
	e.Hint = "codefleet workspace ls shows what it has"
	return e
}

// checkName refuses what is no name of a file, before anything is asked of the store.
func checkName(name string) error {
	if why := badName(name); why != "" {
		e := apierror.New(errcode.BadPath, "this path cannot be a file of a workspace")
		e.Cause, e.Hint, e.Path = why, "a path is relative, as in data/in.csv", "path"
		return e
	}
	return nil
}

func badName(name string) string {
	const mostName = 255
	switch {
	case !utf8.ValidString(name):
		return "it is not UTF-8"
	case !fs.ValidPath(name) || name == ".":
		return "it is empty, absolute, or has . or .. or an empty name in it"
	case strings.IndexFunc(name, hidden) >= 0:
		return "it has a control character, or one that hides what it looks like"
	case slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return len(part) > mostName }):
		return "a name in it is longer than 255 bytes"
	}
	return ""
}

// hidden are characters that make one name look like another: control characters and those that
// turn the direction of text or take no room.
func hidden(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' || r == utf8.RuneError
}

// patientWriter gives a reader time per piece, not per answer.
type patientWriter struct {
	http.ResponseWriter
	slow slowWriter
}

func patiently(w http.ResponseWriter, patience time.Duration) *patientWriter {
	return &patientWriter{w, slowWriter{w, http.NewResponseController(w), patience}}
}

func (p *patientWriter) Write(b []byte) (int, error) { return p.slow.Write(b) }

// Unwrap lets http.ResponseController reach the server's own writer.
func (p *patientWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// getArchive sends a version, or a directory of it, as one file.
func (s *Server) getArchive(w http.ResponseWriter, r *http.Request) error {
	ref, generation, err := s.at(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	format := cmp.Or(q.Get("format"), "zip")
	if format != "zip" && format != "tar" {
		return badParameter("format", "it is zip or tar")
	}
	dir := strings.Trim(q.Get("dir"), "/")
	return s.sendArchive(w, r, ref, generation, format, func(f state.FileInfo) bool {
		return dir == "" || f.Path == dir || strings.HasPrefix(f.Path, dir+"/")
	})
}

// postArchive sends the files that the body names, as tar.
func (s *Server) postArchive(w http.ResponseWriter, r *http.Request) error {
	ref, err := refOf(r, r.PathValue("workspace"))
	if err != nil {
		return err
	}
	b, err := body[struct {
		Generation generation `json:"generation"`
		Paths      []string   `json:"paths"`
	}](s, w, r)
	if err != nil {
		return err
	}
	g, err := s.version(r.Context(), ref, "generation", string(b.Generation))
	if err != nil {
		return err
	}
	want := make(map[string]bool, len(b.Paths))
	for _, p := range b.Paths {
		want[p] = true
	}
	return s.sendArchive(w, r, ref, g, "tar", func(f state.FileInfo) bool { return want[f.Path] })
}

func (s *Server) sendArchive(w http.ResponseWriter, r *http.Request, ref state.Ref, generation int64, format string, want func(state.FileInfo) bool) error {
	info, err := history.ReadInfo(r.Context(), s.o.Workspaces.Repo(), ref)
	if err != nil {
		return err
	}
	if generation == 0 {
		generation = info.Generation
	}
	if info.Files == 0 && generation == info.Generation {
		want = func(state.FileInfo) bool { return false }
		generation = 0
	} else if _, err := history.Diff(r.Context(), s.o.Workspaces.Repo(), ref, generation, generation); err != nil { // while there can be a status
		return err
	}
	h := w.Header()
	asDownload(h, "application/"+map[string]string{"zip": "zip", "tar": "x-tar"}[format], fmt.Sprintf("%s-%d.%s", ref.Workspace, generation, format))
	h.Set(generationHeader, strconv.FormatInt(generation, 10))
	if r.Method == http.MethodHead {
		return nil
	}
	out := patiently(w, s.o.Limits.BodyTime)
	write := s.writeTar
	if format == "zip" {
		write = s.writeZip
	}
	if err := write(r.Context(), out, ref, generation, want); err != nil {
		s.o.Log.WarnContext(r.Context(), "archive not sent whole", "workspace", ref.String(), "error", err.Error())
		panic(http.ErrAbortHandler) // half an archive must not look like a whole one
	}
	return nil
}

// zipName is a path as zip files have it. A backslash is written %5C: to programs of one system it is what
// / is to those of the others, and `..\x` would lead out of the directory.
func zipName(path string) string { return strings.ReplaceAll(path, `\`, "%5C") }

func (s *Server) writeZip(ctx context.Context, out io.Writer, ref state.Ref, generation int64, want func(state.FileInfo) bool) error {
	z := zip.NewWriter(out)
	err := history.Read(ctx, s.o.Workspaces.Repo(), ref, generation, want, func(f state.FileInfo, content io.Reader) error {
		h := &zip.FileHeader{Name: zipName(f.Path), Method: zip.Deflate, Modified: f.Time}
		h.SetMode(fs.FileMode(f.Mode))
		switch f.Kind {
		case state.Dir:
			h.Name, h.Method = h.Name+"/", zip.Store
			h.SetMode(fs.ModeDir | fs.FileMode(f.Mode))
		case state.Link:
			content = strings.NewReader(f.Target)
			h.SetMode(fs.ModeSymlink | fs.FileMode(f.Mode))
		}
		w, err := z.CreateHeader(h)
		if err != nil || f.Kind == state.Dir {
			return err
		}
		_, err = io.Copy(w, content)
		return err
	})
	if err != nil {
		return err
	}
	return z.Close()
}

func (s *Server) writeTar(ctx context.Context, out io.Writer, ref state.Ref, generation int64, want func(state.FileInfo) bool) error {
	t := tar.NewWriter(out)
	err := history.Read(ctx, s.o.Workspaces.Repo(), ref, generation, want, func(f state.FileInfo, content io.Reader) error {
		h := &tar.Header{Format: tar.FormatPAX, Name: f.Path, Mode: int64(f.Mode), ModTime: f.Time, Typeflag: tar.TypeReg, Size: f.Bytes}
		switch f.Kind {
		case state.Dir:
			h.Typeflag, h.Name = tar.TypeDir, f.Path+"/"
		case state.Link:
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.Target
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if f.Kind != state.File {
			return nil
		}
		_, err := io.Copy(t, content)
		return err
	})
	if err != nil {
		return err
	}
	return t.Close() // which ends it: only a whole archive has an end
}
