package ingest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
)

// mostUploads is how many uploads one process reads at a time; each has some 30 MiB in memory.
const mostUploads = 8

// Headers of an upload's file.
const (
	modeHeader = "Codefleet-Mode" // permission bits in octal
	timeHeader = "Codefleet-Time" // of modification, RFC 3339
)

// isUpload reports whether a request's body is files of a workspace, which may be large and slow.
func isUpload(r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.URL.Path, "/v1/workspaces/")
	_, rest, _ = strings.Cut(rest, "/")
	return ok && (r.Method == http.MethodPost && rest == "files" || r.Method == http.MethodPut && strings.HasPrefix(rest, "files/"))
}

// upload makes changes that come with the request's body a commit.
func (s *Server) upload(w http.ResponseWriter, r *http.Request, ref state.Ref, o state.EditOptions, edits func(io.Reader) iter.Seq2[state.Edit, error]) (state.Commit, error) {
	leave, err := s.uploadPlace(r.Context(), ref.Tenant)
	if err != nil {
		return state.Commit{}, err
	}
	defer leave()
	rc := http.NewResponseController(w)
	done, err := s.o.Workspaces.Edit(r.Context(), ref, o, edits(&slowReader{r.Body, rc, s.o.Limits.BodyTime}))
	_ = rc.SetReadDeadline(time.Time{})
	_ = rc.SetWriteDeadline(time.Now().Add(s.o.Limits.BodyTime)) // the upload may have taken its time
	return done, s.bodyError(w, err)
}

// uploadPlace waits for a place for an upload, and returns what gives it back. A tenant has half of
// them: its slow senders leave the others some.
func (s *Server) uploadPlace(ctx context.Context, tenant string) (leave func(), err error) {
	kept, _ := s.uploadsOf.LoadOrStore(tenant, make(chan struct{}, mostUploads/2)) // as many as there are tenants
	own, _ := kept.(chan struct{})
	wait := time.NewTimer(s.o.Limits.QueueTime)
	defer wait.Stop()
	var taken []chan struct{}
	leave = func() {
		for _, places := range taken {
			<-places
		}
	}
	for _, places := range []chan struct{}{own, s.uploads} {
		select {
		case places <- struct{}{}:
			taken = append(taken, places)
			continue
		case <-wait.C:
			e := apierror.New(errcode.Busy, "too many uploads are under way")
			e.RetryAfter, e.Hint = 1, "try again"
			err = e
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		leave()
		return nil, err
	}
	return leave, nil
}

// bodyError explains an error of reading the body, and leaves others as they are.
func (s *Server) bodyError(w http.ResponseWriter, err error) error {
	if err == nil {
		return nil
	}
	w.Header().Set("Connection", "close") // the rest of the body is not waited for
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return apierror.New(errcode.TooLarge, "the body is larger than %d bytes", e.Limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return apierror.New(errcode.BodyTimeout, "nothing of the body arrived for %s", s.o.Limits.BodyTime)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return apierror.New(errcode.BadBody, "the body did not arrive whole")
	}
	return err
}

// slowReader gives a sender time per piece, not per file.
type slowReader struct {
	r       io.Reader
	rc      *http.ResponseController
	patient time.Duration
}

func (s *slowReader) Read(b []byte) (int, error) {
	_ = s.rc.SetReadDeadline(time.Now().Add(s.patient))
	return s.r.Read(b)
}

// putFile writes one file. The answer's ETag is the new one.
func (s *Server) putFile(w http.ResponseWriter, r *http.Request) error {
	ref, err := refOf(r, r.PathValue("workspace"))
	if err != nil {
		return err
	}
	name := r.PathValue("path")
	if err := checkName(name); err != nil {
		return err
	}
	e := state.Edit{Path: name, Kind: state.File}
	if err := conditions(r, &e); err != nil {
		return err
	}
	if e.Mode, e.Time, err = attributes(r.Header.Get); err != nil {
		return err
	}
	o := state.EditOptions{Base: state.Newest, Message: cmp.Or(r.URL.Query().Get("message"), "put "+name)}
	if err := checkMessage(r.URL.Query().Get("message")); err != nil {
		return err
	}
	done, err := s.upload(w, r, ref, o, func(content io.Reader) iter.Seq2[state.Edit, error] {
		e.Content = content
		return one(e)
	})
	if err != nil {
		return unmet(err, e)
	}
	return s.answerEdit(w, r, ref, name, done)
}

// answerEdit shows a commit of one file and the file's ETag.
func (s *Server) answerEdit(w http.ResponseWriter, r *http.Request, ref state.Ref, name string, done state.Commit) error {
	if _, info, err := history.Open(r.Context(), s.o.Workspaces.Repo(), ref, done.Generation, name); err == nil {
		w.Header().Set("ETag", strconv.Quote(info.ETag))
	}
	w.Header().Set(generationHeader, strconv.FormatInt(done.Generation, 10))
	writeJSON(w, http.StatusOK, commitOf(done))
	return nil
}

func one(e state.Edit) iter.Seq2[state.Edit, error] {
	return func(yield func(state.Edit, error) bool) { yield(e, nil) }
}

func (s *Server) deleteFile(w http.ResponseWriter, r *http.Request) error {
	ref, err := refOf(r, r.PathValue("workspace"))
	if err != nil {
		return err
	}
	e := state.Edit{Path: r.PathValue("path")}
	if err := checkName(e.Path); err != nil {
		return err
	}
	if err := conditions(r, &e); err != nil {
		return err
	}
	done, err := s.o.Workspaces.Edit(r.Context(), ref, state.EditOptions{Base: state.Newest, Message: "remove " + e.Path}, one(e))
	if err != nil {
		return unmet(err, e)
	}
	if done.NoChange {
		return unknownFile(ref, e.Path)
	}
	writeJSON(w, http.StatusOK, commitOf(done))
	return nil
}

// conditions reads If-Match and If-None-Match.
func conditions(r *http.Request, e *state.Edit) error {
	e.IfMatch, e.IfNoneMatch = r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	if e.IfNoneMatch != "" && e.IfNoneMatch != "*" {
		return badParameter("If-None-Match", "a change takes If-None-Match: * only, for what must not be there yet")
	}
	if e.IfMatch == "" || e.IfMatch == "*" {
		return nil
	}
	n := len(e.IfMatch)
	if n < 3 || e.IfMatch[0] != '"' || e.IfMatch[n-1] != '"' || strings.ContainsAny(e.IfMatch[1:n-1], `",`) {
		return badParameter("If-Match", `it is one ETag in quotes, as GET gave it, or *`)
	}
	e.IfMatch = e.IfMatch[1 : n-1]
	return nil
}

// unmet is the answer to a condition that did not hold.
func unmet(err error, e state.Edit) error {
	if !errors.Is(err, state.ErrConflict) || e.IfMatch == "" && e.IfNoneMatch == "" {
		return err
	}
	r := apierror.New(errcode.PreconditionFailed, "%s is not what the request expects it to be", e.Path)
	r.Cause, r.Paths = "somebody else has changed it", []string{e.Path}
	r.Hint = "read it again, and send the change of what is there now with its ETag"
	if e.IfNoneMatch != "" {
		r.Cause = "it is there already"
	}
	return r
}

// attributes reads what goes with a file's content.
func attributes(header func(string) string) (mode fs.FileMode, at time.Time, err error) {
	if v := header(modeHeader); v != "" {
		n, err := strconv.ParseUint(v, 8, 32)
		if err != nil || n > 0o777 || n == 0 {
			return 0, at, badParameter(modeHeader, "it is permission bits in octal, as in 0644")
		}
		mode = fs.FileMode(n)
	}
	if v := header(timeHeader); v != "" {
		if at, err = time.Parse(time.RFC3339Nano, v); err != nil || at.Year() < 1970 || at.Year() > 2200 {
			return 0, at, badParameter(timeHeader, "it is a time as in 2026-01-31T12:00:00Z")
		}
	}
	return mode, at, nil
}

// postFiles makes many changes in one commit. The body is multipart/form-data: each part with a file
// name is a file, the part's name its path in the workspace; a part without one, called edits, is a
// JSON array of what is no file. With ?base=N the changes are to generation N, and what others
// changed since is merged; without, they replace what is there.
//
//	curl -F data/in.csv=@in.csv -F 'edits=[{"path": "old.csv"}]' …/v1/workspaces/main/files
func (s *Server) postFiles(w http.ResponseWriter, r *http.Request) error {
	ref, err := refOf(r, r.PathValue("workspace"))
	if err != nil {
		return err
	}
	q := r.URL.Query()
	o := state.EditOptions{Base: state.Newest, Message: cmp.Or(q.Get("message"), "upload")}
	if v := q.Get("base"); v != "" {
		if o.Base, err = strconv.ParseInt(v, 10, 64); err != nil || o.Base < 0 {
			return badParameter("base", "it is the number of a generation")
		}
	}
	if err := checkMessage(o.Message); err != nil {
		return err
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "multipart/form-data" || params["boundary"] == "" {
		return badMediaType(r.Header.Get("Content-Type"), "many files are multipart/form-data; one is put to its own address")
	}
	done, err := s.upload(w, r, ref, o, func(body io.Reader) iter.Seq2[state.Edit, error] {
		return parts(multipart.NewReader(body, params["boundary"]))
	})
	if err != nil {
		return err
	}
	w.Header().Set(generationHeader, strconv.FormatInt(done.Generation, 10))
	writeJSON(w, http.StatusOK, commitOf(done))
	return nil
}

// otherEdit is a change that is not the content of a file.
type otherEdit struct {
	Path   string `json:"path"`
	Kind   string `json:"kind"` // dir or link; empty: the path is removed with all below it
	Mode   string `json:"mode"` // of a directory, in octal
	Target string `json:"target"`
}

const (
	maxEdits  = 64 << 20 // bytes of the part edits
	editsPart = "edits"
)

// parts are the changes of a form, in its order.
func parts(form *multipart.Reader) iter.Seq2[state.Edit, error] {
	return func(yield func(state.Edit, error) bool) {
		for {
			p, err := form.NextRawPart()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(state.Edit{}, badForm(err))
				return
			}
			if p.FileName() == "" && p.FormName() == editsPart {
				if !others(p, yield) {
					return
				}
				continue
			}
			if !yield(filePart(p)) {
				return
			}
		}
	}
}

func filePart(p *multipart.Part) (state.Edit, error) {
	e := state.Edit{Path: p.FormName(), Kind: state.File, Content: p}
	if err := checkName(e.Path); err != nil {
		return e, named(err, e.Path)
	}
	var err error
	e.Mode, e.Time, err = attributes(p.Header.Get)
	return e, err
}

// others yields the changes of the part edits, and reports whether more are wanted.
func others(p io.Reader, yield func(state.Edit, error) bool) bool {
	var list []otherEdit
	data, err := io.ReadAll(io.LimitReader(p, maxEdits+1))
	if err == nil && len(data) > maxEdits {
		err = apierror.New(errcode.TooLarge, "the part edits is larger than %d bytes", maxEdits)
	}
	if err == nil {
		if bad := json.Unmarshal(data, &list); bad != nil {
			err = badJSON(data, bad)
		}
	}
	if err != nil {
		yield(state.Edit{}, err)
		return false
	}
	for _, o := range list {
		e := state.Edit{Path: o.Path, Kind: o.Kind, Target: o.Target}
		err := checkName(o.Path)
		switch {
		case err != nil:
			err = named(err, o.Path)
		case o.Kind == state.File:
			err = badForm(fmt.Errorf("%q: the content of a file is a part of its own", o.Path))
		default:
			e.Mode, _, err = attributes(func(h string) string {
				if h == modeHeader {
					return o.Mode
				}
				return ""
			})
		}
		if !yield(e, err) || err != nil {
			return false
		}
	}
	return true
}

func named(err error, path string) error {
	if e, ok := errors.AsType[*apierror.Error](err); ok {
		e.Paths = []string{strings.ToValidUTF8(path, "\ufffd")}
	}
	return err
}

func badForm(err error) error {
	for _, own := range []error{io.ErrUnexpectedEOF, os.ErrDeadlineExceeded} {
		if errors.Is(err, own) {
			return err
		}
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	e := apierror.New(errcode.BadForm, "the form cannot be read")
	e.Cause = err.Error()
	return e
}
