package repo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// ReadFloor returns a tenant's floor and its ETag. Without a floor object, both are zero.
func (r *Repo) ReadFloor(ctx context.Context, tenant string) (f format.Floor, etag string, err error) {
	key := format.FloorKey(tenant)
	obj, err := r.Bucket.Get(ctx, key, objects.GetOptions{})
	if errors.Is(err, objects.ErrNotFound) {
		return f, "", nil
	}
	if err != nil {
		return f, "", err
	}
	body, ok := format.CutDigest(obj.Data)
	if err = json.Unmarshal(body, &f); err != nil || !ok || f.Generation < 0 {
		return f, "", fmt.Errorf("%s: %w", key, objects.ErrCorrupt)
	}
	return f, obj.ETag, nil
}

// FloorWithoutHead returns the tenant's floor for a workspace that has no HEAD, and ErrCorrupt if HEAD is lost. It is
// lost if there is a manifest that is built on another one, because a HEAD referred to that one. A single manifest may
// be left from a commit that failed, so the loss of a HEAD while there is one version is not always noticed.
func (r *Repo) FloorWithoutHead(ctx context.Context, ref format.Ref) (int64, error) {
	f, _, err := r.ReadFloor(ctx, ref.Tenant)
	if err != nil {
		return 0, err
	}
	older := map[string]bool{} // names of manifests
	for info, err := range r.Bucket.List(ctx, ref.ManifestPrefix(), "") {
		if err != nil {
			return 0, err
		}
		name := strings.TrimPrefix(info.Key, ref.ManifestPrefix())
		built, err := r.isBuilt(ctx, ref, name, f.Generation, older)
		if err != nil {
			return 0, err
		}
		if !built {
			older[name] = true
			continue
		}
		_, etag, err := r.ReadHead(ctx, ref, "") // the workspace may have been created in the meantime
		if err == nil && etag == "" {
			err = fmt.Errorf("%s is missing, although %s exists: %w", ref.HeadKey(), info.Key, objects.ErrCorrupt)
		}
		return f.Generation, err
	}
	return f.Generation, nil
}

// isBuilt reports whether the named manifest is built on one of older, or must have been, because its generation is
// above the first one after the floor. A late commit to a purged workspace leaves a manifest that is built on a removed
// one. A manifest that is damaged, or removed in the meantime, counts as built on none.
func (r *Repo) isBuilt(
	ctx context.Context, ref format.Ref, name string, floor int64, older map[string]bool,
) (bool, error) {
	if (format.ManifestRef{Name: name}).Generation() > floor+1 {
		return true, nil
	}
	m, err := r.ReadManifest(ctx, ref, name, nil)
	if format.IsDamage(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(m.Header.Before(), func(at format.ManifestRef) bool { return older[at.Name] }), nil
}

const (
	absentFor = time.Minute // for which checkAbsent trusts its last check of a workspace
	maxAbsent = 10_000      // workspaces
)

// absences remembers when workspaces were found without HEAD, and HEAD not to be lost.
type absences struct {
	mu sync.Mutex
	at map[format.Ref]time.Time
}

func (a *absences) isRecent(ref format.Ref) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, ok := a.at[ref]
	return ok && time.Since(at) < absentFor
}

func (a *absences) add(ref format.Ref) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at == nil || len(a.at) >= maxAbsent {
		a.at = map[format.Ref]time.Time{}
	}
	a.at[ref] = time.Now()
}

// checkAbsent returns ErrCorrupt if FloorWithoutHead does. For a minute after a success it sends no more request,
// because tasks that change nothing never make a HEAD. A commit checks each time.
func (r *Repo) checkAbsent(ctx context.Context, ref format.Ref) error {
	if r.absent.isRecent(ref) {
		return nil
	}
	_, err := r.FloorWithoutHead(ctx, ref)
	if err == nil {
		r.absent.add(ref)
	}
	return err
}

// RaiseFloor raises a tenant's floor to a generation, unless it is that high already.
func (r *Repo) RaiseFloor(ctx context.Context, tenant string, generation int64) error {
	return r.Options.Retry.Swap(ctx, func() (final bool, err error) {
		f, etag, err := r.ReadFloor(ctx, tenant)
		if err != nil || f.Generation >= generation {
			return true, err
		}
		body, err := json.Marshal(format.Floor{Generation: generation})
		if err != nil {
			return true, err
		}
		_, err = r.Bucket.CompareAndSwap(ctx, format.FloorKey(tenant), etag, format.AppendDigest(body))
		return false, err
	})
}
