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
	"math"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
)

// getFiles lists the paths of a version. For the newest version, the ETag is the id of its commit.
func (s *Server) getFiles(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	generation, err := s.generationOf(r, ref)
	if err != nil {
		return err
	}
	info, err := history.ReadInfo(r.Context(), s.o.Workspaces.Repo(), ref)
	if err != nil {
		return err
	}
	h := w.Header()
	newest := generation == 0 || generation == info.Generation
	if newest {
		generation = info.Generation
		h.Set("ETag", strconv.Quote(cmp.Or(info.Commit, "none")))
	}
	h.Set(generationHeader, strconv.FormatInt(generation, 10))
	if newest && r.Header.Get("If-None-Match") == h.Get("ETag") {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	var list []state.FileInfo
	if !newest || info.Files > 0 {
		if list, err = s.o.Workspaces.List(r.Context(), ref, generation, r.URL.Query().Get("dir")); err != nil {
			return err
		}
	}
	return respondList(w, list, nil)
}

// getFile sends a file as a download. A program may have written it, so a browser must not display it.
func (s *Server) getFile(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	generation, err := s.generationOf(r, ref)
	if err != nil {
		return err
	}
	name := r.PathValue("path")
	if err := checkPath(name); err != nil {
		return err
	}
	f, info, err := history.Open(r.Context(), s.o.Workspaces.Repo(), ref, generation, name)
	if errors.Is(err, state.ErrNotFound) {
		if generation > 0 {
			if _, missing := s.o.Workspaces.Repo().Find(r.Context(), ref, generation); missing != nil {
				return missing // the whole version
			}
		}
		return unknownFile(ref, name)
	}
	if err != nil {
		return err
	}
	h := w.Header()
	asDownload(h, cmp.Or(mime.TypeByExtension(path.Ext(name)), "application/octet-stream"), path.Base(name))
	h.Set("ETag", strconv.Quote(info.ETag))
	if strings.Count(r.Header.Get("Range"), ",") >= maxRanges {
		r.Header.Del("Range")
	}
	http.ServeContent(w, r, "", info.Time, f)
	return nil
}

// maxRanges is how many ranges of a file one request may ask for. A request with more gets the whole file, because
// each range may read some MiB from the object store.
const maxRanges = 8

// getArchive sends a version, or a directory of it, as one file.
func (s *Server) getArchive(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	generation, err := s.generationOf(r, ref)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	format := cmp.Or(q.Get("format"), "zip")
	if format != "zip" && format != "tar" {
		return badParameter("format", "it must be zip or tar")
	}
	dir := strings.Trim(q.Get("dir"), "/")
	return s.sendArchive(w, r, ref, generation, format, func(f state.FileInfo) bool {
		return dir == "" || f.Path == dir || strings.HasPrefix(f.Path, dir+"/")
	})
}

// archiveOptions is the body of POST …/archive.
type archiveOptions struct {
	Generation versionName `json:"generation,omitempty"`
	Paths      []string    `json:"paths,omitempty"`
}

// postArchive sends the files that the body lists, as tar.
func (s *Server) postArchive(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	b, err := readJSON[archiveOptions](s, w, r)
	if err != nil {
		return err
	}
	g, err := s.version(r.Context(), ref, "/generation", string(b.Generation))
	if err != nil {
		return err
	}
	wanted := make(map[string]bool, len(b.Paths))
	for _, p := range b.Paths {
		wanted[p] = true
	}
	return s.sendArchive(w, r, ref, g, "tar", func(f state.FileInfo) bool { return wanted[f.Path] })
}

// sendArchive sends the paths of a version for which include reports true, as a zip or tar file.
func (s *Server) sendArchive(
	w http.ResponseWriter, r *http.Request, ref state.Ref, generation int64, format string,
	include func(state.FileInfo) bool,
) error {
	info, err := history.ReadInfo(r.Context(), s.o.Workspaces.Repo(), ref)
	if err != nil {
		return err
	}
	if generation == 0 {
		generation = info.Generation
	}
	read := generation
	if info.Files == 0 && generation == info.Generation {
		include = func(state.FileInfo) bool { return false }
		read = 0
	} else if _, err := history.Diff(r.Context(), s.o.Workspaces.Repo(), ref, generation, generation); err != nil {
		// The version is read once before the response begins, so that a failure can still have an error status.
		return err
	}
	h := w.Header()
	mediaType := map[string]string{"zip": "application/zip", "tar": "application/x-tar"}[format]
	asDownload(h, mediaType, fmt.Sprintf("%s-%d.%s", ref.Workspace, generation, format))
	h.Set(generationHeader, strconv.FormatInt(generation, 10))
	if r.Method == http.MethodHead {
		return nil
	}
	write := s.writeTar
	if format == "zip" {
		write = s.writeZip
	}
	if err := write(r.Context(), w, ref, read, include); err != nil {
		s.o.Telemetry.Log.WarnContext(r.Context(), "archive sent incompletely", "workspace", ref.String(),
			"error", causes(err))
		panic(http.ErrAbortHandler) // a partial archive must not look complete
	}
	return nil
}

// zipName returns a path for a zip file. It replaces each backslash with %5C, because Windows treats it as a
// separator: `..\x` would point outside the directory.
func zipName(path string) string { return strings.ReplaceAll(path, `\`, "%5C") }

// zipTime returns the time nearest to t that all fields of a zip file can hold.
func zipTime(t time.Time) time.Time {
	switch first, last := time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(math.MaxUint32, 0); {
	case t.Before(first):
		return first
	case t.After(last):
		return last
	}
	return t
}

func (s *Server) writeZip(
	ctx context.Context, out io.Writer, ref state.Ref, generation int64, include func(state.FileInfo) bool,
) error {
	z := zip.NewWriter(out)
	add := func(f state.FileInfo, content io.Reader) error {
		h := &zip.FileHeader{Name: zipName(f.Path), Method: zip.Deflate, Modified: zipTime(f.Time)}
		h.SetMode(fs.FileMode(f.Mode))
		switch f.Kind {
		case state.Dir:
			h.Name, h.Method = h.Name+"/", zip.Store
			h.SetMode(fs.ModeDir | fs.FileMode(f.Mode))
		case state.Symlink:
			content = strings.NewReader(f.Target)
			h.SetMode(fs.ModeSymlink | fs.FileMode(f.Mode))
		}
		w, err := z.CreateHeader(h)
		if err != nil || f.Kind == state.Dir {
			return err
		}
		_, err = io.Copy(w, content)
		return err
	}
	if err := history.Read(ctx, s.o.Workspaces.Repo(), ref, generation, include, add); err != nil {
		return err
	}
	return z.Close()
}

func (s *Server) writeTar(
	ctx context.Context, out io.Writer, ref state.Ref, generation int64, include func(state.FileInfo) bool,
) error {
	t := tar.NewWriter(out)
	add := func(f state.FileInfo, content io.Reader) error {
		h := &tar.Header{
			Format: tar.FormatPAX, Typeflag: tar.TypeReg, Name: f.Path, Mode: int64(f.Mode),
			ModTime: f.Time, Size: f.Bytes,
		}
		switch f.Kind {
		case state.Dir:
			h.Typeflag, h.Name = tar.TypeDir, f.Path+"/"
		case state.Symlink:
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.Target
		}
		if err := t.WriteHeader(h); err != nil || f.Kind != state.File {
			return err
		}
		_, err := io.Copy(t, content)
		return err
	}
	if err := history.Read(ctx, s.o.Workspaces.Repo(), ref, generation, include, add); err != nil {
		return err
	}
	return t.Close() // writes the trailer, which marks the archive as complete
}
