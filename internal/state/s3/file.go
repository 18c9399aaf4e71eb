package s3

import (
	"context"
	"io"

	"github.com/minio/minio-go/v7"
)

const filePart = 8 << 20 // bytes of a file in memory

// PutFile writes size bytes over whatever is stored under key; a file larger than a part goes in several.
// Readers see the old or the new content.
func (o *Objects) PutFile(ctx context.Context, key string, r io.Reader, size int64) error {
	_, err := o.core.Client.PutObject(ctx, o.bucket, o.prefix+key, onlyReader{r}, size, minio.PutObjectOptions{
		ContentType: "application/octet-stream", PartSize: filePart, NumThreads: 1,
	})
	return o.wrap("put", key, err)
}

// onlyReader hides what else a reader can: it is read once, from its start.
type onlyReader struct{ io.Reader }
