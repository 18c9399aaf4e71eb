package page

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"
)

// pictures are the media types that a page shows. SVG is not one of them, because it may contain scripts.
var pictures = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

func isPicture(media string) bool { return slices.Contains(pictures, media) }

const (
	sniffed  = 512              // first bytes of a file, which show whether it is a picture
	maxText  = 256 << 10        // bytes of a file that a page shows as text
	fileTime = 10 * time.Minute // time limit to send a file

	// filePolicy is the content security policy of a file: it may load and run nothing.
	filePolicy = "sandbox; default-src 'none'; frame-ancestors 'none'"
)

// serveContent sends a program's file to the browser: a picture to be shown, any other file as a download. Browsers run
// nothing in it, because its media type follows from the content, not from the name, and because of filePolicy.
func (q *request) serveContent(name string, content io.ReadCloser) error {
	defer content.Close()
	head := make([]byte, sniffed)
	n, err := io.ReadFull(content, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	head = head[:n]
	h := q.w.Header()
	h.Set("Content-Security-Policy", filePolicy)
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if media := http.DetectContentType(head); isPicture(media) {
		h.Set("Content-Type", media)
	} else {
		h.Set("Content-Type", "application/octet-stream")
		file := map[string]string{"filename": filepath.Base(name)}
		h.Set("Content-Disposition", mime.FormatMediaType("attachment", file))
	}
	_ = http.NewResponseController(q.w).SetWriteDeadline(time.Now().Add(fileTime)) // not every writer supports it
	if _, err := io.Copy(q.w, io.MultiReader(bytes.NewReader(head), content)); err != nil {
		panic(http.ErrAbortHandler) // a partial file must not look complete
	}
	return nil
}

// getArtifact sends an artifact of a task.
func getArtifact(q *request) error {
	name := q.r.PathValue("path")
	content, err := q.c.Artifact(q.ctx, q.r.PathValue("id"), name)
	if err != nil {
		return err
	}
	return q.serveContent(name, content)
}

// textFile is the text of a file, or the reason why a page does not show it.
type textFile struct {
	Shown bool
	Text  string // the whole file if Shown
	Why   string // why not, otherwise
}

// readText reads a file. A page shows it only if it is UTF-8 text and has at most maxText bytes.
func readText(content io.Reader) (textFile, error) {
	data, err := io.ReadAll(io.LimitReader(content, maxText+1))
	switch {
	case err != nil:
		return textFile{}, err
	case len(data) > maxText:
		return textFile{Why: fmt.Sprintf("The file has more than %s.", byteSize(maxText))}, nil
	case !utf8.Valid(data) || bytes.ContainsRune(data, 0):
		return textFile{Why: "The file is not UTF-8 text."}, nil
	}
	return textFile{Text: string(data), Shown: true}, nil
}
