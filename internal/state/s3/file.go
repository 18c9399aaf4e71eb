package s3

import (
	"context"
	"io"

	"github.com/minio/minio-go/v7"
)

const filePart = 8 << 20 // bytes of one part, which is held in memory

// PutFile writes size bytes over whatever is stored under key, in several parts if the file is large. Readers see the
// old or the new content.
func (o *Objects) PutFile(ctx context.Context, key string, r io.Reader, size int64) error {
	_, err := o.core.Client.PutObject(ctx, o.bucket, o.prefix+key, onlyReader{r}, size, minio.PutObjectOptions{
		ContentType: "application/octet-stream", PartSize: filePart, NumThreads: 1,
	})
	return o.wrap("put", key, err)
}

// onlyReader hides a reader's other methods: with Seek or ReadAt, minio-go would read parts again or in parallel.
type onlyReader struct{ io.Reader }
