package ingest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// Artifacts opens files that tasks returned. It is called only with paths that the task's result lists. It
// returns fs.ErrNotExist for a file that no longer exists.
type Artifacts interface {
	Artifact(ctx context.Context, rec schemas.Record, path string) (io.ReadCloser, error)
}

// getArtifact sends an artifact as a download. A program wrote it, so a browser must not display it.
func (s *Server) getArtifact(w http.ResponseWriter, r *http.Request) error {
	rec, err := s.await(r.Context(), r.PathValue("id"), 0, nil)
	if err != nil {
		return err
	}
	a, ok := findArtifact(rec, r.PathValue("path"))
	if !ok || s.o.Artifacts == nil {
		return unknownArtifact()
	}
	f, err := s.o.Artifacts.Artifact(r.Context(), rec, a.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return unknownArtifact()
	}
	if err != nil {
		return err
	}
	defer f.Close()
	h := w.Header()
	asDownload(h, a.MediaType, path.Base(a.Path))
	h.Set("Content-Length", strconv.FormatInt(a.Bytes, 10))
	h.Set("Cache-Control", "private, no-store")
	w.WriteHeader(http.StatusOK)
	if n, err := io.Copy(w, f); err != nil || n != a.Bytes {
		s.o.Telemetry.Log.WarnContext(r.Context(), "artifact sent incompletely", "task_id", rec.TaskID, "sent", n, "of",
			a.Bytes, "error", causes(err))
		panic(http.ErrAbortHandler) // a partial file must not look complete
	}
	return nil
}

func findArtifact(rec schemas.Record, path string) (schemas.Artifact, bool) {
	if rec.Result != nil {
		for _, a := range rec.Result.Artifacts {
			if a.Path == path {
				return a, true
			}
		}
	}
	return schemas.Artifact{}, false
}

func unknownArtifact() error {
	e := apierror.New(errcode.UnknownArtifact, "the task has no such artifact")
	e.Hint = "the result lists the artifacts, once the task has ended"
	return e
}

// asDownload marks a response as untrusted content, which a browser saves and does not display.
func asDownload(h http.Header, mediaType, name string) {
	if _, _, err := mime.ParseMediaType(mediaType); err != nil {
		mediaType = "application/octet-stream" // a program chose it, so it may be an invalid header
	}
	h.Set("Content-Type", mediaType)
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Cache-Control", "private, no-cache")
}
