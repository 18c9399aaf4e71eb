package ingest

import (
	"cmp"
	"context"
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
	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/history"
	"github.com/codefleet/codefleet/internal/strictjson"
)

// isUpload reports whether the request uploads files to a workspace, so that its body may be large and slow.
func isUpload(r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.URL.Path, "/v1/workspaces/")
	_, rest, _ = strings.Cut(rest, "/")
	return ok && (r.Method == http.MethodPost && rest == "files" ||
		r.Method == http.MethodPut && strings.HasPrefix(rest, "files/"))
}

// upload commits the changes that edits reads from the request body.
func (s *Server) upload(
	w http.ResponseWriter, r *http.Request, ref state.Ref, o state.EditOptions,
	edits func(io.Reader) iter.Seq2[state.Edit, error],
) (state.Commit, error) {
	release, err := s.acquireUpload(r.Context(), ref.Tenant)
	if err != nil {
		return state.Commit{}, err
	}
	defer release()
	rc := http.NewResponseController(w)
	result, err := s.o.Workspaces.Edit(r.Context(), ref, o, edits(&deadlineReader{r.Body, rc, s.o.Limits.BodyTime}))
	_ = rc.SetReadDeadline(time.Time{})
	return result, s.bodyError(w, err)
}

// acquireUpload waits until another upload may begin; release ends it. A tenant may use at most half of the
// uploads, so that its slow senders do not block other tenants.
func (s *Server) acquireUpload(ctx context.Context, tenant string) (release func(), err error) {
	stored, _ := s.tenantUploads.LoadOrStore(tenant, make(chan struct{}, maxUploads/2))
	ofTenant, _ := stored.(chan struct{})
	wait := time.NewTimer(s.o.Limits.QueueTime)
	defer wait.Stop()
	var acquired []chan struct{}
	release = func() {
		for _, slots := range acquired {
			<-slots
		}
	}
	for _, slots := range []chan struct{}{ofTenant, s.uploads} {
		select {
		case slots <- struct{}{}:
			acquired = append(acquired, slots)
			continue
		case <-wait.C:
			e := apierror.New(errcode.Busy, "too many uploads are in progress")
			e.Hint = "try again"
			err = e
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		release()
		return nil, err
	}
	return release, nil
}

// bodyError translates an error of reading the body. It returns other errors unchanged.
func (s *Server) bodyError(w http.ResponseWriter, err error) error {
	if err == nil {
		return nil
	}
	w.Header().Set("Connection", "close") // otherwise net/http would read the rest of the body
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return apierror.New(errcode.TooLarge, "the body is larger than %d bytes", e.Limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return apierror.New(errcode.BodyTimeout, "no data of the body arrived for %s", s.o.Limits.BodyTime)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return apierror.New(errcode.BadBody, "the connection ended before the whole body arrived")
	}
	return err
}

// deadlineReader sets a deadline for each read instead of one for the whole body.
type deadlineReader struct {
	io.Reader
	rc      *http.ResponseController
	timeout time.Duration
}

func (r *deadlineReader) Read(b []byte) (int, error) {
	_ = r.rc.SetReadDeadline(time.Now().Add(r.timeout))
	return r.Reader.Read(b)
}

// putFile writes one file. The response has the ETag of the new content.
func (s *Server) putFile(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	name := r.PathValue("path")
	if err := checkPath(name); err != nil {
		return err
	}
	e := state.Edit{Path: name, Kind: state.File}
	if err := conditions(r, &e); err != nil {
		return err
	}
	var err error
	if e.Mode, e.Time, err = attributes(r.Header.Get); err != nil {
		return err
	}
	message := r.URL.Query().Get("message")
	if err := checkMessage("message", message); err != nil {
		return err
	}
	o := state.EditOptions{Base: state.Newest, Message: cmp.Or(message, "put "+name)}
	result, err := s.upload(w, r, ref, o, func(content io.Reader) iter.Seq2[state.Edit, error] {
		e.Content = content
		return singleEdit(e)
	})
	if err != nil {
		return conditionError(err, e)
	}
	if _, info, err := history.Open(r.Context(), s.o.Workspaces.Repo(), ref, result.Generation, name); err == nil {
		w.Header().Set("ETag", strconv.Quote(info.ETag))
	}
	w.Header().Set(generationHeader, strconv.FormatInt(result.Generation, 10))
	return respond(w, commitOf(result), nil)
}

// singleEdit yields a single change.
func singleEdit(e state.Edit) iter.Seq2[state.Edit, error] {
	return func(yield func(state.Edit, error) bool) { yield(e, nil) }
}

func (s *Server) deleteFile(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	e := state.Edit{Path: r.PathValue("path")}
	if err := checkPath(e.Path); err != nil {
		return err
	}
	if err := conditions(r, &e); err != nil {
		return err
	}
	result, err := s.o.Workspaces.Edit(r.Context(), ref,
		state.EditOptions{Base: state.Newest, Message: "remove " + e.Path}, singleEdit(e))
	if err != nil {
		return conditionError(err, e)
	}
	if result.NoChange {
		return unknownFile(ref, e.Path)
	}
	return respond(w, commitOf(result), nil)
}

// conditions reads If-Match and If-None-Match into e.
func conditions(r *http.Request, e *state.Edit) error {
	e.IfMatch, e.IfNoneMatch = r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	if e.IfNoneMatch != "" && e.IfNoneMatch != "*" {
		return badParameter("If-None-Match", "a change requires *, which means that the path must not exist")
	}
	if e.IfMatch == "" || e.IfMatch == "*" {
		return nil
	}
	n := len(e.IfMatch)
	if n < 3 || e.IfMatch[0] != '"' || e.IfMatch[n-1] != '"' || strings.ContainsAny(e.IfMatch[1:n-1], `",`) {
		return badParameter("If-Match", `it must be one ETag in quotes, as GET returned it, or *`)
	}
	e.IfMatch = e.IfMatch[1 : n-1]
	return nil
}

// conditionError translates the conflict of a conditional request. It returns other errors unchanged.
func conditionError(err error, e state.Edit) error {
	if !errors.Is(err, state.ErrConflict) || e.IfMatch == "" && e.IfNoneMatch == "" {
		return err
	}
	r := apierror.New(errcode.PreconditionFailed, "%s does not meet the condition of the request", e.Path)
	r.Cause, r.Paths = "it has changed", []string{e.Path}
	r.Hint = "read it again, and repeat the change with its new ETag"
	if e.IfNoneMatch != "" {
		r.Cause = "it already exists"
	}
	return r
}

// attributes reads the permission bits and the modification time of a file. header returns the value of a header.
func attributes(header func(string) string) (mode fs.FileMode, at time.Time, err error) {
	if v := header(modeHeader); v != "" {
		n, err := strconv.ParseUint(v, 8, 32)
		if err != nil || n > 0o777 || n == 0 {
			return 0, at, badParameter(modeHeader, "it must be permission bits in octal, as in 0644")
		}
		mode = fs.FileMode(n)
	}
	if v := header(timeHeader); v != "" {
		if at, err = time.Parse(time.RFC3339Nano, v); err != nil {
			return 0, at, badParameter(timeHeader, "it must be a time as in 2026-01-31T12:00:00Z")
		}
		at = time.Unix(0, clock.Nanos(at)) // never the zero time, which means now
	}
	return mode, at, nil
}

// postFiles commits many changes at once. The body is multipart/form-data. Each part with a file name is a file,
// and the part's name is its path. The part edits, which has no file name, is a JSON array of other changes. With
// ?base=N the changes are based on generation N, and later commits are merged. Without it, the changes replace the
// current content.
//
//	curl -F data/in.csv=@in.csv -F 'edits=[{"path": "old.csv"}]' …/v1/workspaces/main/files
func (s *Server) postFiles(w http.ResponseWriter, r *http.Request, ref state.Ref) error {
	q := r.URL.Query()
	o := state.EditOptions{Base: state.Newest, Message: cmp.Or(q.Get("message"), "upload")}
	if v := q.Get("base"); v != "" {
		var err error
		if o.Base, err = strconv.ParseInt(v, 10, 64); err != nil || o.Base < 0 {
			return badParameter("base", "it must be a generation")
		}
	}
	if err := checkMessage("message", o.Message); err != nil {
		return err
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "multipart/form-data" || params["boundary"] == "" {
		return badMediaType(r.Header.Get("Content-Type"),
			"send several files as multipart/form-data, or PUT a single file to its own path")
	}
	result, err := s.upload(w, r, ref, o, func(body io.Reader) iter.Seq2[state.Edit, error] {
		return formEdits(multipart.NewReader(body, params["boundary"]))
	})
	if err != nil {
		return err
	}
	w.Header().Set(generationHeader, strconv.FormatInt(result.Generation, 10))
	return respond(w, commitOf(result), nil)
}

// otherEdit is a change other than the content of a file.
type otherEdit struct {
	Path   string `json:"path"`
	Kind   string `json:"kind"` // dir or link; empty removes the path and, for a directory, its content
	Mode   string `json:"mode"` // a directory's permission bits in octal
	Target string `json:"target"`
}

const (
	maxEditBytes = 64 << 20 // limit of the part edits in bytes
	editsPart    = "edits"
)

// maxEdits bounds the changes in the part edits: as many as a workspace with the default quota has paths.
var maxEdits = strictjson.MaxElements[otherEdit](200_000)

// formEdits yields the changes of a form, in order.
func formEdits(form *multipart.Reader) iter.Seq2[state.Edit, error] {
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
			switch {
			case p.FileName() != "":
				if !yield(filePart(p)) {
					return
				}
			case p.FormName() == editsPart:
				if !yieldOthers(p, yield) {
					return
				}
			default:
				yield(state.Edit{}, badForm(fmt.Errorf(
					"the part %q is neither a file, which has a file name, nor the part edits", p.FormName())))
				return
			}
		}
	}
}

func filePart(p *multipart.Part) (state.Edit, error) {
	e := state.Edit{Path: p.FormName(), Kind: state.File, Content: p}
	if err := checkPath(e.Path); err != nil {
		return e, withPath(err, e.Path)
	}
	var err error
	e.Mode, e.Time, err = attributes(p.Header.Get)
	return e, err
}

// yieldOthers yields the changes in the part edits. It reports whether to continue with the next part.
func yieldOthers(p io.Reader, yield func(state.Edit, error) bool) bool {
	var list []otherEdit
	data, err := io.ReadAll(io.LimitReader(p, maxEditBytes+1))
	if err == nil && len(data) > maxEditBytes {
		err = apierror.New(errcode.TooLarge, "the part edits is larger than %d bytes", maxEditBytes)
	}
	if err == nil {
		// It refuses unknown fields, because an edit with a misspelt kind would remove its path.
		err = decodeJSON(data, &list, maxEdits)
	}
	if err != nil {
		yield(state.Edit{}, err)
		return false
	}
	for _, o := range list {
		e := state.Edit{Path: o.Path, Kind: o.Kind, Target: o.Target}
		err := checkPath(o.Path)
		switch {
		case err != nil:
			err = withPath(err, o.Path)
		case o.Kind == state.File:
			err = badForm(fmt.Errorf("%q: send the content of a file as a part", o.Path))
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

func withPath(err error, path string) error {
	if e, ok := errors.AsType[*apierror.Error](err); ok {
		e.Paths = []string{strings.ToValidUTF8(path, "\ufffd")}
	}
	return err
}

// badForm returns the error of a form that cannot be parsed.
func badForm(err error) error {
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	if tooLarge || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded) {
		return err // bodyError translates it
	}
	e := apierror.New(errcode.BadForm, "the form cannot be read")
	e.Cause = err.Error()
	return e
}
