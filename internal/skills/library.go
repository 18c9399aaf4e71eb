package skills

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codefleet/codefleet/internal/mutex"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/internal/tools"
)

// Scopes of a skill.
const (
	OfTenant = "tenant"
	OfFleet  = "fleet"
)

// Options configure a Library. Log is required.
type Options struct {
	Bucket objects.Objects // if nil, tenants have no skills of their own
	Dir    string          // the fleet's skills, which all tenants share; empty for none
	Log    *slog.Logger
}

const (
	// staleAfter is how long a tenant's skills are used before the index is read again, in the background. Usually
	// Changed comes first.
	staleAfter = time.Minute
	// dirEvery is the minimal time between two scans of the directory of the fleet's skills.
	dirEvery = 2 * time.Second
	// reloadTime bounds a read in the background.
	reloadTime = 30 * time.Second
)

// Library has the skills of the fleet and of all tenants, in one process. It reads a tenant's skills when they are
// first needed, and again after Changed. It is safe for concurrent use.
type Library struct {
	o Options

	background sync.WaitGroup  // reads that no caller waits for
	life       context.Context //nolint:containedctx // the context of these reads
	stop       context.CancelFunc

	mu      sync.Mutex
	tenants map[string]*tenantSkills
	fleet   fleetSkills
}

// tenantSkills is what the library knows about a tenant's skills.
type tenantSkills struct {
	changed atomic.Bool // read the index before the next use

	mu     *mutex.Mutex // for the fields below
	etag   string
	own    []Stored // the newest version of each skill
	read   time.Time
	loaded bool     // the index was read at least once
	fleet  []Stored // the fleet's skills in set
	broken []Broken // the fleet's broken skills in set
	set    *Set     // what Of returned last; nil if it must be made again
}

// fleetSkills is what the library knows about the fleet's skills.
type fleetSkills struct {
	scanned time.Time // when the directory was last compared with stamp
	stamp   string    // of the directory when it was last read
	list    []Stored
	broken  []Broken
}

// Stored is a skill with its version.
type Stored struct {
	Skill
	Version Version // the zero value for a skill of the fleet
	Scope   string
}

// Set is the skills that a tenant's programs can import. It is immutable.
type Set struct {
	Skills []Stored // sorted by name
	Broken []Broken // invalid skills in the fleet's directory
}

// Find returns the skill of a name, or an error that suggests a similar name and wraps ErrNotFound.
func (s *Set) Find(name string) (Stored, error) {
	names := make([]string, len(s.Skills))
	for i, skill := range s.Skills {
		if skill.Name == name {
			return skill, nil
		}
		names[i] = skill.Name
	}
	return Stored{}, notFoundError(name, names)
}

// notFoundError returns an error that suggests the one of names that is most similar to name.
func notFoundError(name string, names []string) error {
	name = text.Truncate(text.Printable(name), maxName)
	if near := text.Nearest(name, names, max(2, len(name)/3)); near != "" {
		return fmt.Errorf("%w: %s (did you mean %s?)", ErrNotFound, name, near)
	}
	return fmt.Errorf("%w: %s", ErrNotFound, name)
}

// NewLibrary returns a library. It reads nothing yet.
func NewLibrary(o Options) *Library {
	l := &Library{o: o, tenants: map[string]*tenantSkills{}}
	l.life, l.stop = context.WithCancel(context.Background())
	return l
}

// Changed says that a tenant's skills have changed: the next use reads them.
func (l *Library) Changed(tenant string) {
	if h := l.tenant(tenant, false); h != nil {
		h.changed.Store(true)
	}
}

// Disconnected says that changes may have been missed: the next use of each tenant's skills reads them.
func (l *Library) Disconnected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.tenants {
		h.changed.Store(true)
	}
}

// tenant returns the entry of a tenant. If there is none, it adds one if create is true, or else returns nil.
func (l *Library) tenant(name string, create bool) *tenantSkills {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.tenants[name]
	if h == nil && create {
		h = &tenantSkills{mu: mutex.New()}
		l.tenants[name] = h
	}
	return h
}

// Of returns the tenant's skills and the fleet's, or nil if there are none. It returns the same *Set until something
// changes. If the object store fails, it returns the last known skills, or an error if there are none.
func (l *Library) Of(ctx context.Context, tenant string) (*Set, error) {
	if l == nil {
		return nil, nil
	}
	fleet, broken := l.readFleet()
	h := l.tenant(tenant, true)
	if err := h.mu.Lock(ctx); err != nil {
		return nil, err
	}
	defer h.mu.Unlock()
	if err := l.refresh(ctx, tenant, h); err != nil {
		return nil, err
	}
	if len(h.own)+len(fleet)+len(broken) == 0 {
		h.set, h.fleet, h.broken = nil, nil, nil
		return nil, nil
	}
	if h.set == nil || !sameList(h.fleet, fleet) || !sameList(h.broken, broken) {
		h.set, h.fleet, h.broken = newSet(h.own, fleet, broken), fleet, broken
	}
	return h.set, nil
}

// sameList reports whether a and b are the same slice, or both empty. It does not compare skills.
func sameList[T any](a, b []T) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// newSet merges the skills. A tenant's own skill takes precedence: a skill that the fleet gets later must not change
// what the tenant's programs import.
func newSet(own, fleet []Stored, broken []Broken) *Set {
	s := &Set{Skills: slices.Clone(own), Broken: broken}
	for _, f := range fleet {
		if !slices.ContainsFunc(own, func(o Stored) bool { return o.Name == f.Name }) {
			s.Skills = append(s.Skills, f)
		}
	}
	slices.SortFunc(s.Skills, func(a, b Stored) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

// refresh brings the tenant's own skills up to date if they changed. If they were read longer than staleAfter ago, it
// begins to compare the index in the background. The caller holds h.mu.
func (l *Library) refresh(ctx context.Context, tenant string, h *tenantSkills) error {
	if l.o.Bucket == nil {
		return nil
	}
	changed := h.changed.Swap(false) // before the read, so that a change during the read causes another read
	switch {
	case !h.loaded || changed:
		err := l.reload(ctx, tenant, h)
		if err == nil {
			return nil
		}
		if !h.loaded || ctx.Err() != nil {
			h.changed.Store(true)
			return err
		}
		h.read = time.Now() // the old skills stay for a while
		l.o.Log.WarnContext(ctx, "read of skills failed; last known skills kept", "tenant", tenant, "error", err)
	case time.Since(h.read) > staleAfter:
		h.read = time.Now()
		etag := h.etag
		l.background.Go(func() { l.compare(tenant, etag) })
	}
	return nil
}

// compare calls Changed if the index is no longer the one with the given ETag.
func (l *Library) compare(tenant, etag string) {
	ctx, cancel := context.WithTimeout(l.life, reloadTime)
	defer cancel()
	if _, now, err := readIndex(ctx, l.o.Bucket, tenant, etag); err == nil && now != etag {
		l.Changed(tenant)
	}
}

// Close ends reads in the background. The library stays usable.
func (l *Library) Close() {
	if l != nil {
		l.stop()
		l.background.Wait()
	}
}

// reload reads the index, and the versions that are new. If a version is removed before it is read, the index is read
// again. The caller holds h.mu.
func (l *Library) reload(ctx context.Context, tenant string, h *tenantSkills) error {
	known := h.etag
	var missing error
	for {
		x, etag, err := readIndex(ctx, l.o.Bucket, tenant, known)
		if errors.Is(err, objects.ErrNotModified) {
			if missing == nil {
				h.read = time.Now()
			}
			return missing
		}
		if err != nil {
			return err
		}
		own, err := l.readNewest(ctx, tenant, x, h.own)
		if err == nil {
			h.own, h.etag, h.set = own, etag, nil
			h.loaded, h.read = true, time.Now()
			return nil
		}
		if !errors.Is(err, objects.ErrNotFound) {
			return err
		}
		known, missing = etag, err
	}
}

// readNewest returns the newest version of each skill of an index. It does not read a version again if the list have
// contains it.
func (l *Library) readNewest(ctx context.Context, tenant string, x index, have []Stored) (own []Stored, err error) {
	for name := range x.Skills {
		v, ok := x.newest(name)
		if !ok {
			continue
		}
		i := slices.IndexFunc(have, func(s Stored) bool { return s.Name == name && s.Version.Digest == v.Digest })
		if i >= 0 {
			own = append(own, Stored{have[i].Skill, v, OfTenant})
			continue
		}
		s, err := load(ctx, l.o.Bucket, tenant, v)
		if err == nil && s.Name != name {
			err = fmt.Errorf("skill %s is named %s: %w", name, s.Name, objects.ErrCorrupt)
		}
		if err != nil {
			return nil, err
		}
		own = append(own, Stored{s, v, OfTenant})
	}
	return own, nil
}

// readFleet returns the fleet's skills. It reads the directory again if a file has changed, at most once per dirEvery.
func (l *Library) readFleet() ([]Stored, []Broken) {
	if l.o.Dir == "" {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &l.fleet
	if !f.scanned.IsZero() && time.Since(f.scanned) < dirEvery {
		return f.list, f.broken
	}
	first := f.scanned.IsZero()
	f.scanned = time.Now()
	now := stamp(l.o.Dir)
	if now == f.stamp && !first {
		return f.list, f.broken
	}
	list, broken, err := readAll(l.o.Dir)
	if err != nil {
		l.o.Log.Warn("read of the fleet's skills failed", "dir", l.o.Dir, "error", err)
		return f.list, f.broken
	}
	f.stamp, f.list, f.broken = now, nil, broken
	for _, s := range list {
		f.list = append(f.list, Stored{Skill: s, Scope: OfFleet})
	}
	for _, b := range broken {
		l.o.Log.Warn("skipped invalid skill", "dir", l.o.Dir, "path", b.Path, "reason", b.Message)
	}
	return f.list, f.broken
}

// Save stores a version of a tenant's skill that replaces version base; 0 means that the skill is new. A new skill may
// not have the name of a skill of the fleet. The errors are ErrNoStore, *TakenError, *VersionError, *LimitError, and
// those of the object store.
func (l *Library) Save(ctx context.Context, tenant string, s Skill, v Version, base int) (Version, error) {
	if l.o.Bucket == nil {
		return v, ErrNoStore
	}
	if err := l.checkTaken(s.Name, base); err != nil {
		return v, err
	}
	saved, err := save(ctx, l.o.Bucket, tenant, s, v, base)
	l.Changed(tenant)
	return saved, err
}

// TakenError means that the fleet has a skill of that name.
type TakenError struct{ Name string }

func (e *TakenError) Error() string {
	return fmt.Sprintf("the name is taken: the fleet has a skill %s, which all tenants share", e.Name)
}

// Check returns the error that Save would return now.
func (l *Library) Check(ctx context.Context, tenant string, s Skill, base int) error {
	if l.o.Bucket == nil {
		return ErrNoStore
	}
	if err := l.checkTaken(s.Name, base); err != nil {
		return err
	}
	_, _, err := check(ctx, l.o.Bucket, tenant, s, Version{}, base)
	return err
}

// checkTaken returns a *TakenError if a new skill would have the name of a skill of the fleet.
func (l *Library) checkTaken(name string, base int) error {
	fleet, _ := l.readFleet()
	if base == 0 && slices.ContainsFunc(fleet, func(s Stored) bool { return s.Name == name }) {
		return &TakenError{name}
	}
	return nil
}

// Remove removes a tenant's skill with all its versions. base must be the newest version, or 0, which means any.
func (l *Library) Remove(ctx context.Context, tenant, name string, base int) error {
	if l.o.Bucket == nil {
		return ErrNoStore
	}
	err := remove(ctx, l.o.Bucket, tenant, name, base)
	l.Changed(tenant)
	if errors.Is(err, ErrNotFound) {
		return l.notFound(ctx, tenant, name)
	}
	return err
}

// notFound returns an error for a skill that the tenant does not have, with a suggestion.
func (l *Library) notFound(ctx context.Context, tenant, name string) error {
	set, err := l.Of(ctx, tenant)
	if err != nil || set == nil {
		return cmp.Or(err, notFoundError(name, nil))
	}
	_, err = set.Find(name)
	return cmp.Or(err, notFoundError(name, nil))
}

// Versions returns the kept versions of a tenant's skill, the newest first.
func (l *Library) Versions(ctx context.Context, tenant, name string) ([]Version, error) {
	if l.o.Bucket == nil {
		return nil, ErrNoStore
	}
	x, _, err := readIndex(ctx, l.o.Bucket, tenant, "")
	if err != nil {
		return nil, err
	}
	if _, ok := x.newest(name); !ok {
		return nil, l.notFound(ctx, tenant, name)
	}
	list := slices.Clone(x.Skills[name].Versions)
	slices.Reverse(list)
	return list, nil
}

// Get returns a version of a skill: the newest one if version is 0. Skills of the fleet have no other versions.
func (l *Library) Get(ctx context.Context, tenant, name string, version int) (Stored, error) {
	if version == 0 {
		set, err := l.Of(ctx, tenant)
		if err != nil {
			return Stored{}, err
		}
		if set == nil {
			return Stored{}, notFoundError(name, nil)
		}
		return set.Find(name)
	}
	versions, err := l.Versions(ctx, tenant, name)
	if err != nil {
		return Stored{}, err
	}
	for _, v := range versions {
		if v.Version == version {
			s, err := load(ctx, l.o.Bucket, tenant, v)
			return Stored{s, v, OfTenant}, err
		}
	}
	return Stored{}, fmt.Errorf("%w: %s has no version %d; the kept ones are %d to %d",
		ErrNotFound, name, version, versions[len(versions)-1].Version, versions[0].Version)
}

// Overlay returns the set as an addition to a tenant's catalogue: the files that programs import, and the list of
// skills.
func (s *Set) Overlay() (files map[string][]byte, list []tools.Skill) {
	files = map[string][]byte{}
	for _, skill := range s.Skills {
		maps.Copy(files, skill.Module())
		list = append(list, tools.Skill{
			Name: skill.Name, Module: ModuleOf(skill.Name), Description: skill.Description,
			Signature: skill.Signature(), Version: skill.Version.Version, Scope: skill.Scope,
			Runnable: skill.Entry != EntryNone,
		})
	}
	return files, list
}
