package state

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Info is what is known of a workspace without reading its files.
type Info struct {
	Name       string    `json:"name"`
	Generation int64     `json:"generation"` // of the newest version; 0: never committed to
	Commit     string    `json:"commit,omitempty"`
	Time       time.Time `json:"time,omitzero"` // of the newest commit
	Files      int       `json:"files"`         // files, directories and links
	Bytes      int64     `json:"bytes"`
}

// Info returns what HEAD says: one small request. A workspace that was never committed to, or
// was deleted, has no files.
func (s *Store) Info(ctx context.Context, ref Ref) (Info, error) {
	if err := ref.check(); err != nil {
		return Info{}, err
	}
	h, _, err := s.readHead(ctx, ref, "")
	if err != nil {
		return Info{}, fmt.Errorf("look at %s: %w", ref, err)
	}
	return h.info(ref), nil
}

func (h *head) info(ref Ref) Info {
	return Info{ref.Workspace, h.Generation, h.Commit, h.Time, h.Files, h.Bytes}
}

// Workspaces returns a tenant's workspaces that are not deleted, by name. It makes two small
// requests for each.
func (s *Store) Workspaces(ctx context.Context, tenant string) ([]Info, error) {
	if !slug.MatchString(tenant) {
		return nil, fmt.Errorf("tenant name %q is not a slug", tenant)
	}
	var list []Info
	prefix := tenant + "/w/"
	after := ""
	for {
		name, err := s.nextWorkspace(ctx, prefix, after)
		if err != nil {
			return nil, fmt.Errorf("list workspaces of %s: %w", tenant, err)
		}
		if name == "" {
			slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
			return list, nil
		}
		after = prefix + name + "/~" // behind all of its keys
		ref := Ref{tenant, name}
		if ref.check() != nil {
			continue
		}
		h, _, err := s.readHead(ctx, ref, "")
		if err != nil {
			return nil, fmt.Errorf("list workspaces of %s: %w", tenant, err)
		}
		if h.Manifest != nil {
			list = append(list, h.info(ref))
		}
	}
}

func (s *Store) nextWorkspace(ctx context.Context, prefix, after string) (string, error) {
	for o, err := range s.objects.List(ctx, prefix, after) {
		if err != nil {
			return "", err
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(o.Key, prefix), "/")
		return name, nil
	}
	return "", nil
}

// Pinned is a version that is kept under a name.
type Pinned struct {
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
}

// Pins returns the pins of a workspace, the oldest first.
func (s *Store) Pins(ctx context.Context, ref Ref) ([]Pinned, error) {
	if err := ref.check(); err != nil {
		return nil, err
	}
	p, _, err := s.readPins(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("pins of %s: %w", ref, err)
	}
	var list []Pinned
	for _, pin := range p.Pins {
		list = append(list, Pinned{pin.Name, pin.Generation})
	}
	return list, nil
}

// CheckName says what is wrong with the name of a workspace, a tenant or a pin.
func CheckName(name string) error {
	if !slug.MatchString(name) {
		return fmt.Errorf("%.80q is not of the form %s", name, slug)
	}
	return nil
}
