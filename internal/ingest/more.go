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
	"time"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/schemas"
)

// Artifacts opens files that tasks handed back. It is asked only for paths that the task's result
// lists. A file that is no longer there is fs.ErrNotExist.
type Artifacts interface {
	Artifact(ctx context.Context, rec schemas.Record, path string) (io.ReadCloser, error)
}

// getArtifact sends one file for keeping, never for showing: it is whatever a program wrote.
func (s *Server) getArtifact(w http.ResponseWriter, r *http.Request) error {
	rec, err := s.await(r.Context(), r.PathValue("id"), 0, nil)
	if err != nil {
		return err
	}
	a, ok := listed(rec, r.PathValue("path"))
	if !ok || s.o.Artifacts == nil {
		return noArtifact()
	}
	f, err := s.o.Artifacts.Artifact(r.Context(), rec, a.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return noArtifact()
	}
	if err != nil {
		return err
	}
	defer f.Close()
	h := w.Header()
	h.Set("Content-Type", safeType(a.MediaType))
	h.Set("Content-Length", strconv.FormatInt(a.Bytes, 10))
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(a.Path)}))
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Cache-Control", "private, no-store")
	w.WriteHeader(http.StatusOK)
	if n, err := io.Copy(&slowWriter{w, http.NewResponseController(w), s.o.Limits.BodyTime}, f); err != nil || n != a.Bytes {
		s.o.Log.WarnContext(r.Context(), "artifact not sent whole", "task_id", rec.TaskID, "sent", n, "of", a.Bytes, "error", err)
		panic(http.ErrAbortHandler) // half a file must not look like a whole one
	}
	return nil
}

func listed(rec schemas.Record, name string) (schemas.Artifact, bool) {
	if rec.Result != nil {
		for _, a := range rec.Result.Artifacts {
			if a.Path == name {
				return a, true
			}
		}
	}
	return schemas.Artifact{}, false
}

func noArtifact() error {
	e := apierror.New(errcode.UnknownArtifact, "the task has no such artifact")
	e.Hint = "the result lists its artifacts, once the task has ended"
	return e
}

// safeType is a media type that can stand in a header.
func safeType(s string) string {
	if _, _, err := mime.ParseMediaType(s); err != nil {
		return "application/octet-stream"
	}
	return s
}

// slowWriter gives a reader time per piece, not per file.
type slowWriter struct {
	w       io.Writer
	rc      *http.ResponseController
	patient time.Duration
}

func (s *slowWriter) Write(b []byte) (int, error) {
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.patient))
	return s.w.Write(b)
}

func (s *Server) getDead(w http.ResponseWriter, r *http.Request) error {
	limit, err := limitOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Limits.QueueTime)
	defer cancel()
	dead, err := s.o.Jobs.DeadLetters(ctx, identityOf(ctx).tenant, limit)
	if err != nil {
		return err
	}
	writeList(w, dead)
	return nil
}

func (s *Server) getFleet(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Limits.QueueTime)
	defer cancel()
	workers, err := s.o.Jobs.Workers(ctx)
	if err != nil {
		return err
	}
	backlog, err := s.o.Jobs.Backlog(ctx)
	if err != nil {
		return err
	}
	f := schemas.Fleet{Workers: []schemas.Worker{}, Backlog: []schemas.Backlog{}}
	f.Workers = append(f.Workers, workers...)
	f.Backlog = append(f.Backlog, backlog...)
	writeJSON(w, http.StatusOK, f)
	return nil
}

func (s *Server) getSchema(w http.ResponseWriter, r *http.Request) error {
	text, err := schemas.Text(r.PathValue("name"))
	if err != nil {
		e := apierror.New(errcode.UnknownSchema, "there is no such schema")
		e.Hint = "there are " + schemas.TaskV1 + ", " + schemas.RecordV1 + ", " + schemas.ResultV1 + " and " + schemas.ProgressV1
		return e
	}
	w.Header().Set("Content-Type", "application/schema+json")
	_, _ = w.Write(text) //nolint:gosec // a file of ours, under a name that is compared with those there are
	return nil
}

// healthz says that this process answers.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

// readyz says that a request would be served: the queue answers, and the server does not drain.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) error {
	if s.stopping.Err() != nil {
		e := apierror.New(errcode.Stopping, "this process is about to end")
		e.RetryAfter = 1
		return e
	}
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if _, err := s.o.Jobs.Workers(ctx); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
	return nil
}
