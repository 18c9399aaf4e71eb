package bridge

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codefleet/codefleet/client"
)

// Limits of the images that a result contains as content for the model. Other images remain links or paths.
const (
	maxImages = 4
	maxImage  = 1 << 20 // bytes of one image
)

// imageTypes are the media types that models accept.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// imageRef refers to an image of a task: an artifact, or a file that a tool returned.
type imageRef struct {
	path, media string
	bytes       int64
	artifact    bool
}

// images reads the images of a task that succeeded. They are artifacts, or files that tools returned and to which the
// program's result refers.
func (p *principal) images(ctx context.Context, rec client.Record) []mcp.Content {
	if rec.Result == nil || rec.Status != client.Succeeded {
		return nil
	}
	var out []mcp.Content
	for _, ref := range imagesOf(rec.Result) {
		if len(out) == maxImages {
			break
		}
		data, err := p.readImage(ctx, rec, ref)
		if err != nil {
			p.b.o.Log.DebugContext(ctx, "image not read", "task_id", rec.TaskID, "error", err)
			continue
		}
		// The program may have declared a wrong type.
		if media := http.DetectContentType(data); len(data) <= maxImage && slices.Contains(imageTypes, media) {
			out = append(out, &mcp.ImageContent{Data: data, MIMEType: media})
		}
	}
	return out
}

// imagesOf returns the small images of a result.
func imagesOf(r *client.Result) []imageRef {
	var refs []imageRef
	for _, a := range r.Artifacts {
		refs = append(refs, imageRef{a.Path, a.MediaType, a.Bytes, true})
	}
	var value any
	if json.Unmarshal(r.Result, &value) == nil {
		refs = append(refs, toolFilesIn(value)...)
	}
	return slices.DeleteFunc(refs, func(r imageRef) bool {
		return r.bytes > maxImage || !slices.Contains(imageTypes, strings.ToLower(r.media))
	})
}

// toolResults is the workspace's directory for files that tools return. Programs get an object with the path, the
// media type and the size of such a file.
const toolResults = "tool-results/"

// toolFilesIn returns the files that tools returned and to which a value refers.
func toolFilesIn(value any) (refs []imageRef) {
	switch v := value.(type) {
	case []any:
		for _, e := range v {
			refs = append(refs, toolFilesIn(e)...)
		}
	case map[string]any:
		path, _ := v["path"].(string)
		media, _ := v["media_type"].(string)
		size, _ := v["bytes"].(float64)
		path = strings.TrimPrefix(path, "/workspace/")
		if strings.HasPrefix(path, toolResults) && media != "" {
			return []imageRef{{path: path, media: media, bytes: int64(size)}}
		}
		for _, e := range v {
			refs = append(refs, toolFilesIn(e)...)
		}
	}
	return refs
}

// readImage reads an image. If the image is too large, it reads one byte more than the limit.
func (p *principal) readImage(ctx context.Context, rec client.Record, ref imageRef) ([]byte, error) {
	open := func() (io.ReadCloser, error) { return p.fleet.Artifact(ctx, rec.TaskID, ref.path) }
	if !ref.artifact {
		version := "" // the newest
		if g := rec.Result.Workspace.Generation; g > 0 {
			version = strconv.FormatInt(g, 10)
		}
		open = func() (io.ReadCloser, error) {
			return p.fleet.Workspace(rec.Workspace).Open(ctx, version, ref.path, 0)
		}
	}
	f, err := open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxImage+1))
}
