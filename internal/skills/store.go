package skills

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
)

// The objects of a tenant's skills. An underscore never begins the name of a tenant, so the keys are not those of a
// workspace.
//
//	_skills/<tenant>/HEAD        the index, which is changed by compare-and-swap
//	_skills/<tenant>/<object>    the files of one version
//
// No two saves share an object, even if they save the same files. Otherwise a removal that has just dropped a version
// would delete the files to which a concurrent save refers.
const prefix = "_skills/"

// Limits of a tenant.
const (
	maxSkills     = 500
	maxTotal      = 64 << 20 // bytes of the newest versions
	keepVersions  = 20       // versions of each skill that are kept
	maxIndexRaces = 20       // how often change tries to store the index
)

// Version is one stored version of a skill. It is immutable.
type Version struct {
	Version     int            `json:"version"` // from 1; a number is never used again
	Digest      objects.Digest `json:"digest"`
	Object      string         `json:"object,omitempty"` // if empty, as in old indexes, the digest names the object
	Bytes       int            `json:"bytes"`
	Files       int            `json:"files"`
	Description string         `json:"description"`
	SavedAt     time.Time      `json:"saved_at"`
	SavedBy     string         `json:"saved_by,omitempty"`  // the name of the token
	FromTask    string         `json:"from_task,omitempty"` // the task whose program it is
}

// index is the list of a tenant's skills.
type index struct {
	Format int                       `json:"format"` // 1
	Skills map[string]*skillVersions `json:"skills"` // by name
}

// skillVersions are the versions of one skill. Without any, the skill was removed; Last then keeps its version numbers
// from being used again.
type skillVersions struct {
	Last     int       `json:"last"`     // the highest version number
	Versions []Version `json:"versions"` // the oldest first
}

func (x index) newest(name string) (Version, bool) {
	e := x.Skills[name]
	if e == nil || len(e.Versions) == 0 {
		return Version{}, false
	}
	return e.Versions[len(e.Versions)-1], true
}

// replaced returns the version that the newest one of a skill replaced; 0 means that it replaced none.
func (x index) replaced(name string) int {
	versions := x.Skills[name].Versions
	if len(versions) < 2 {
		return 0
	}
	return versions[len(versions)-2].Version
}

// Errors that callers branch on.
var (
	ErrNotFound = errors.New("no such skill")
	ErrNoStore  = errors.New("no object store for skills")
)

// VersionError means that the newest version of a skill is not the one on which a change builds.
type VersionError struct {
	Name          string
	Base, Current int // 0 means that the skill does not exist
}

func (e *VersionError) Error() string {
	switch {
	case e.Base == 0:
		return fmt.Sprintf("the name is taken: skill %s exists, at version %d", e.Name, e.Current)
	case e.Current == 0:
		return fmt.Sprintf("skill %s does not exist, but the change builds on version %d", e.Name, e.Base)
	}
	return fmt.Sprintf("skill %s is at version %d, but the change builds on version %d", e.Name, e.Current, e.Base)
}

// LimitError means that a tenant's skills have reached a limit, by their number or their size.
type LimitError struct{ Reason string }

func (e *LimitError) Error() string { return e.Reason }

func headKey(tenant string) string { return prefix + tenant + "/HEAD" }

func objectKey(tenant string, v Version) string {
	return prefix + tenant + "/" + cmp.Or(v.Object, v.Digest.String())
}

// readIndex returns a tenant's index and its ETag. Both are empty if the tenant has never had skills. If known is not
// empty and still the index's ETag, readIndex returns objects.ErrNotModified.
func readIndex(ctx context.Context, bucket objects.Objects, tenant, known string) (x index, etag string, err error) {
	o, err := bucket.Get(ctx, headKey(tenant), objects.GetOptions{IfNoneMatch: known})
	if errors.Is(err, objects.ErrNotFound) {
		return index{Format: 1, Skills: map[string]*skillVersions{}}, "", nil
	}
	if err != nil {
		return x, "", fmt.Errorf("read skills of tenant %s: %w", tenant, err)
	}
	if err := json.Unmarshal(o.Data, &x); err != nil || x.Format != 1 || x.Skills == nil {
		return x, "", fmt.Errorf("read skills of tenant %s: %w (format %d)", tenant, objects.ErrCorrupt, x.Format)
	}
	for name, e := range x.Skills {
		if CheckName(name) != nil || e == nil {
			return x, "", fmt.Errorf("read skills of tenant %s: %w", tenant, objects.ErrCorrupt)
		}
	}
	return x, o.ETag, nil
}

// change applies fn to a tenant's index and stores the result. After a lost race it starts again, so fn may be called
// several times. If the index then is what the last attempt has tried to store, the attempt has succeeded although its
// response was lost, and change ends.
func change(ctx context.Context, bucket objects.Objects, tenant string, fn func(*index) error) error {
	var last error
	var wanted []byte
	for range maxIndexRaces {
		x, etag, err := readIndex(ctx, bucket, tenant, "")
		if err != nil {
			return err
		}
		if wanted != nil {
			if found, err := json.Marshal(x); err != nil || bytes.Equal(found, wanted) {
				return err
			}
		}
		if err := fn(&x); err != nil {
			return err
		}
		data, err := json.Marshal(x)
		if err != nil {
			return err
		}
		wanted = data
		_, err = bucket.CompareAndSwap(ctx, headKey(tenant), etag, data)
		if err == nil {
			return nil
		}
		if !errors.Is(err, objects.ErrConflict) && !errors.Is(err, objects.ErrTemporary) || ctx.Err() != nil {
			return fmt.Errorf("save skills of tenant %s: %w", tenant, err)
		}
		last = err
	}
	return fmt.Errorf("save skills of tenant %s: %w", tenant, last)
}

// save stores a version of a skill that replaces version base; 0 means that the skill is new. A call whose response was
// lost may be repeated: the same files on the same base are the same version.
func save(
	ctx context.Context, bucket objects.Objects, tenant string, s Skill, v Version, base int,
) (saved Version, err error) {
	v, data, err := check(ctx, bucket, tenant, s, v, base)
	if err != nil {
		return v, err
	}
	v.Object = v.Digest.String() + "-" + rand.Text()
	if err := bucket.Put(ctx, objectKey(tenant, v), data, v.Digest); err != nil {
		return v, fmt.Errorf("store skill %s: %w", s.Name, err)
	}
	var dropped []Version
	err = change(ctx, bucket, tenant, func(x *index) (err error) {
		saved, dropped, err = x.add(s.Name, v, base)
		return err
	})
	if err != nil {
		return v, err // the object stays: it is unknown whether the index refers to it
	}
	if saved.Object != v.Object {
		dropped = append(dropped, v)
	}
	deleteObjects(ctx, bucket, tenant, dropped)
	return saved, nil
}

// check completes v, and returns it with the content to store. The error is the one that save would return now.
func check(
	ctx context.Context, bucket objects.Objects, tenant string, s Skill, v Version, base int,
) (Version, []byte, error) {
	data, err := encode(s.Files)
	if err != nil {
		return v, nil, fmt.Errorf("encode skill %s: %w", s.Name, err)
	}
	v.Digest, v.Bytes, v.Files = objects.Sum(data), s.Bytes(), len(s.Files)
	v.Description = s.Description
	x, _, err := readIndex(ctx, bucket, tenant, "")
	if err == nil {
		_, _, err = x.add(s.Name, v, base)
	}
	return v, data, err
}

// add adds a version to the index, unless it has been added already. It returns the versions that are no longer kept.
func (x *index) add(name string, v Version, base int) (saved Version, dropped []Version, err error) {
	current, exists := x.newest(name)
	if exists && current.Digest == v.Digest && (base == current.Version || base == x.replaced(name)) {
		return current, nil, nil
	}
	if current.Version != base {
		return v, nil, &VersionError{Name: name, Base: base, Current: current.Version}
	}
	count, total := 0, v.Bytes
	for other := range x.Skills {
		if newest, ok := x.newest(other); ok && other != name {
			count, total = count+1, total+newest.Bytes
		}
	}
	if count >= maxSkills {
		return v, nil, &LimitError{fmt.Sprintf("the tenant has %d skills, which is the limit", count)}
	}
	if total > maxTotal {
		return v, nil, &LimitError{
			fmt.Sprintf("the tenant's skills would be %d bytes; the limit is %d", total, maxTotal),
		}
	}
	e := x.Skills[name]
	if e == nil {
		e = &skillVersions{}
		x.Skills[name] = e
	}
	e.Last++
	v.Version = e.Last
	e.Versions = append(e.Versions, v)
	if n := len(e.Versions) - keepVersions; n > 0 {
		dropped, e.Versions = e.Versions[:n], slices.Clone(e.Versions[n:])
	}
	return v, dropped, nil
}

// remove removes a skill with all its versions. base must be the newest version, or 0, which means any.
func remove(ctx context.Context, bucket objects.Objects, tenant, name string, base int) error {
	var dropped []Version
	err := change(ctx, bucket, tenant, func(x *index) error {
		current, ok := x.newest(name)
		if !ok {
			return ErrNotFound
		}
		if base != 0 && base != current.Version {
			return &VersionError{Name: name, Base: base, Current: current.Version}
		}
		dropped = x.Skills[name].Versions
		x.Skills[name] = &skillVersions{Last: x.Skills[name].Last}
		return nil
	})
	if err != nil {
		return err
	}
	deleteObjects(ctx, bucket, tenant, dropped)
	return nil
}

// deleteObjects removes the files of versions that the index no longer has. It ignores errors: files that stay only
// take up space.
func deleteObjects(ctx context.Context, bucket objects.Objects, tenant string, versions []Version) {
	var keys []string
	for _, v := range versions {
		if v.Object != "" { // other versions may share an object that is named by its digest
			keys = append(keys, objectKey(tenant, v))
		}
	}
	if len(keys) > 0 {
		_ = bucket.Delete(ctx, keys...)
	}
}

// load returns the skill of a version.
func load(ctx context.Context, bucket objects.Objects, tenant string, v Version) (Skill, error) {
	o, err := bucket.Get(ctx, objectKey(tenant, v), objects.GetOptions{})
	if err != nil {
		return Skill{}, fmt.Errorf("read skill: %w", err)
	}
	if objects.Sum(o.Data) != v.Digest {
		return Skill{}, fmt.Errorf("read skill %s: %w", v.Digest, objects.ErrCorrupt)
	}
	files, err := decode(o.Data)
	if err != nil {
		return Skill{}, fmt.Errorf("read skill %s: %w (%w)", v.Digest, objects.ErrCorrupt, err)
	}
	return New("", files) // its name was checked when it was stored
}
