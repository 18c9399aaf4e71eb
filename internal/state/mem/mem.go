// Package mem is an object store in memory. It behaves like a strict S3 server, checks that its callers keep the
// contract of objects.Objects, and fails on demand.
package mem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
)

// MaxSwap is the largest size of a swapped object in bytes. Conditional PUTs must stay small, because servers close the
// connection when they reject a large one.
const MaxSwap = 128 << 10

// Objects is the store. The zero value is not usable; call New.
type Objects struct {
	mu         sync.Mutex
	objects    map[string]object
	etags      int
	violations []error
	fault      func(Call) Fault
	calls      []Call
}

type object struct {
	data     []byte
	etag     string
	modified time.Time
	swapped  bool   // written by CompareAndSwap
	was      []byte // data before Damage; nil if the object was not damaged
}

func (o object) undamaged() []byte {
	if o.was != nil {
		return o.was
	}
	return o.data
}

var _ objects.Objects = (*Objects)(nil)

// New returns an empty store.
func New() *Objects { return &Objects{objects: map[string]object{}} }

// Violations returns the contract violations of callers, joined.
func (o *Objects) Violations() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return errors.Join(o.violations...)
}

// Get implements objects.Objects.
func (o *Objects) Get(ctx context.Context, key string, opts objects.GetOptions) (objects.Object, error) {
	f, err := o.enter(ctx, Call{Op: "get", Key: key})
	if err != nil {
		return objects.Object{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	obj, ok := o.objects[key]
	switch {
	case !ok:
		return objects.Object{}, fmt.Errorf("get %s: %w", key, objects.ErrNotFound)
	case opts.IfNoneMatch != "" && opts.IfNoneMatch == obj.etag:
		return objects.Object{}, fmt.Errorf("get %s: %w", key, objects.ErrNotModified)
	}
	end := int64(len(obj.data))
	if opts.Length > 0 {
		end = opts.Offset + opts.Length
	}
	if opts.Offset < 0 || opts.Offset > end || end > int64(len(obj.data)) {
		return objects.Object{}, fmt.Errorf("get %s: range %d+%d of %d bytes",
			key, opts.Offset, opts.Length, len(obj.data))
	}
	data := append(opts.Buffer[:0], obj.data[opts.Offset:end]...)
	if f == Corrupt && len(data) > 0 {
		data[len(data)/2] ^= 0x20
	}
	return objects.Object{Data: data, ETag: obj.etag, Modified: obj.modified}, o.leave(f)
}

// Put implements objects.Objects.
func (o *Objects) Put(ctx context.Context, key string, data []byte, sum objects.Digest) error {
	f, err := o.enter(ctx, Call{Op: "put", Key: key, Size: len(data)})
	if err != nil {
		return err
	}
	if objects.Sum(data) != sum {
		return fmt.Errorf("put %s: digest does not match the body: %w", key, objects.ErrCorrupt)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checkKey(key)
	if old, ok := o.objects[key]; ok && (old.swapped || !bytes.Equal(old.undamaged(), data)) {
		o.violate("put %s: replaces an immutable object with other content", key)
	}
	o.store(key, data, false)
	return o.leave(f)
}

// PutFile writes size bytes over whatever is stored under key.
func (o *Objects) PutFile(ctx context.Context, key string, r io.Reader, size int64) error {
	f, err := o.enter(ctx, Call{Op: "file", Key: key, Size: int(size)})
	if err != nil {
		return err
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checkKey(key)
	if int64(len(data)) != size {
		o.violate("file %s: %d bytes, want %d", key, len(data), size)
	}
	o.store(key, data, false)
	return o.leave(f)
}

// CompareAndSwap implements objects.Objects.
func (o *Objects) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	f, err := o.enter(ctx, Call{Op: "swap", Key: key, Size: len(data)})
	if err != nil {
		return "", err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checkKey(key)
	if len(data) > MaxSwap {
		o.violate("swap %s: the data is %d bytes; the limit is %d", key, len(data), MaxSwap)
	}
	current, exists := o.objects[key]
	if exists && !current.swapped {
		o.violate("swap %s: replaces an immutable object", key)
	}
	if exists != (old != "") || current.etag != old {
		return "", fmt.Errorf("swap %s: %w", key, objects.ErrConflict)
	}
	o.store(key, data, true)
	return o.objects[key].etag, o.leave(f)
}

// List implements objects.Objects.
func (o *Objects) List(ctx context.Context, prefix, after string) iter.Seq2[objects.ObjectInfo, error] {
	return func(yield func(objects.ObjectInfo, error) bool) {
		f, err := o.enter(ctx, Call{Op: "list", Key: prefix})
		if err != nil {
			yield(objects.ObjectInfo{}, err)
			return
		}
		for _, info := range o.infos(prefix, after) {
			if !yield(info, nil) {
				return
			}
		}
		if err := o.leave(f); err != nil {
			yield(objects.ObjectInfo{}, err)
		}
	}
}

func (o *Objects) infos(prefix, after string) []objects.ObjectInfo {
	o.mu.Lock()
	defer o.mu.Unlock()
	var infos []objects.ObjectInfo
	for _, key := range slices.Sorted(maps.Keys(o.objects)) {
		if strings.HasPrefix(key, prefix) && key > after {
			obj := o.objects[key]
			infos = append(infos, objects.ObjectInfo{Key: key, Size: int64(len(obj.data)), Modified: obj.modified})
		}
	}
	return infos
}

// Delete implements objects.Objects.
func (o *Objects) Delete(ctx context.Context, keys ...string) error {
	f, err := o.enter(ctx, Call{Op: "delete", Key: strings.Join(keys, " ")})
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range keys {
		delete(o.objects, key)
	}
	return o.leave(f)
}

func (o *Objects) store(key string, data []byte, swapped bool) {
	o.etags++
	o.objects[key] = object{
		data: bytes.Clone(data), etag: strconv.Quote(strconv.Itoa(o.etags)),
		modified: time.Now().Truncate(time.Second), swapped: swapped,
	}
}

// checkKey checks the rules for keys. The caller holds o.mu.
func (o *Objects) checkKey(key string) {
	if key == "" || len(key) > 1024 || strings.HasPrefix(key, "/") || strings.HasSuffix(key, "/") ||
		strings.Contains(key, "//") {
		o.violate("key %q is malformed", key)
	}
	for part := range strings.SplitSeq(key, "/") {
		if len(part) > 255 || part == "." || part == ".." {
			o.violate("key %q has a component that is not a valid file name", key)
		}
	}
	for other := range o.objects {
		if strings.HasPrefix(other, key+"/") || strings.HasPrefix(key, other+"/") {
			o.violate("of the keys %q and %q, one is a directory of the other", key, other)
		}
	}
}

func (o *Objects) violate(format string, args ...any) {
	o.violations = append(o.violations, fmt.Errorf(format, args...))
}
