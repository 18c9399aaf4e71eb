package s3

import (
	"context"
	"io"

	"github.com/minio/minio-go/v7"

	"github.com/codefleet/codefleet/internal/state"
)

var _ state.MirrorTarget = (*Objects)(nil)

const filePart = 8 << 20 // bytes of a file in memory

// PutFile implements state.MirrorTarget. A file larger than a part goes in several.
func (o *Objects) PutFile(ctx context.Context, key string, r io.Reader, size int64) error {
	_, err := o.core.Client.PutObject(ctx, o.bucket, o.prefix+key, onlyReader{r}, size, minio.PutObjectOptions{
		ContentType: "application/octet-stream", PartSize: filePart, NumThreads: 1,
	})
	return o.wrap("put", key, err)
}

// onlyReader hides what else a reader can: it is read once, from its start.
type onlyReader struct{ io.Reader }
