package content

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/codefleet/codefleet/internal/state/format"
)

// fileReader reads a stored file. It holds one blob in memory at a time.
type fileReader struct {
	store  *Store
	ctx    context.Context //nolint:containedctx // for io.Reader; a reader lives as long as one request
	tenant string
	entry  *format.Entry
	at     int64 // where the next Read begins

	data  []byte // content of the last blob
	start int64  // offset of data in the file
}

// Read implements io.Reader.
func (r *fileReader) Read(p []byte) (int, error) {
	if r.at >= r.entry.Size {
		return 0, io.EOF
	}
	if r.data == nil || r.at < r.start || r.at >= r.start+int64(len(r.data)) {
		if err := r.load(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.data[r.at-r.start:])
	r.at += int64(n)
	return n, nil
}

// load fetches the blob at r.at.
func (r *fileReader) load() error {
	var start int64
	for i := range r.entry.Blobs {
		b := &r.entry.Blobs[i]
		if r.at < start+b.Raw {
			data := make([]byte, b.Raw)
			err := r.store.Fetch(r.ctx, r.tenant, []Want{{b, 0, 0}}, func(_ int, _ Want, content []byte) error {
				copy(data, content)
				return nil
			})
			if err != nil {
				return fmt.Errorf("read content: %w", err) // without the path, which is the tenant's: it may be logged
			}
			r.data, r.start = data, start
			return nil
		}
		start += b.Raw
	}
	return io.ErrUnexpectedEOF
}

// Seek implements io.Seeker.
func (r *fileReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.entry.Size
	}
	if offset < 0 {
		return 0, errors.New("seek before the start of the file")
	}
	r.at = offset
	return offset, nil
}

// BatchBytes is how many bytes of small files one ReadBatch should read.
const BatchBytes = 16 << 20

// Open returns a reader of a stored file. It fetches only the blobs that are read. ctx bounds all reads.
func (s *Store) Open(ctx context.Context, tenant string, e *format.Entry) io.ReadSeeker {
	return &fileReader{store: s, ctx: ctx, tenant: tenant, entry: e}
}

// ReadBatch calls fn with the content of each file of batch, in order. The files must have at most one blob each. The
// content is valid during the call. ReadBatch returns fn's errors unchanged.
func (s *Store) ReadBatch(
	ctx context.Context, tenant string, batch []*format.Entry, fn func(*format.Entry, *bytes.Reader) error,
) error {
	content := make([][]byte, len(batch))
	var wants []Want
	for i, e := range batch {
		content[i] = make([]byte, e.Size)
		if len(e.Blobs) == 1 {
			wants = append(wants, Want{&e.Blobs[0], i, 0})
		}
	}
	err := s.Fetch(ctx, tenant, wants, func(_ int, w Want, data []byte) error {
		copy(content[w.Target], data)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read content: %w", err)
	}
	for i, e := range batch {
		if err := fn(e, bytes.NewReader(content[i])); err != nil {
			return err
		}
	}
	return nil
}
