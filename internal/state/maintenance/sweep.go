package maintenance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// marks is the object that one run leaves for a later one.
type marks struct {
	Time time.Time `json:"time"`
	Keys []string  `json:"keys"`
}

// sweep removes what an earlier run marked long enough ago and is still
// unreferenced, and marks the rest.
func (c *collector) sweep(ctx context.Context) error {
	pending := map[string]bool{}
	prefix := c.tenant + "/gc/"
	var runs []string
	for info, err := range c.repo.Bucket.List(ctx, prefix, "") {
		if err != nil {
			return err
		}
		if info.Key != scheduleKey(c.tenant) {
			runs = append(runs, info.Key)
		}
	}
	for _, run := range runs {
		if err := c.sweepRun(ctx, run, pending); err != nil {
			return err
		}
	}
	var fresh []string
	for key := range c.candidates {
		if !pending[key] {
			fresh = append(fresh, key)
		}
	}
	c.out.Marked = len(fresh) + len(pending)
	if len(fresh) == 0 || c.opts.DryRun {
		return nil
	}
	slices.Sort(fresh)
	data, err := json.Marshal(marks{c.now.UTC(), fresh})
	if err != nil {
		return err
	}
	key := prefix + fmt.Sprintf("%012d-%s", c.now.Unix(), strings.ToLower(format.NewCommitID()))
	return c.repo.Bucket.Put(ctx, key, data, objects.Sum(data))
}

func (c *collector) sweepRun(ctx context.Context, run string, pending map[string]bool) error {
	obj, err := c.repo.Bucket.Get(ctx, run, objects.GetOptions{})
	if errors.Is(err, objects.ErrNotFound) {
		return nil // another run at the same time has done it
	}
	if err != nil {
		return err
	}
	var m marks
	if err := json.Unmarshal(obj.Data, &m); err != nil { // nobody knows what was marked: it is marked again
		c.repo.Options.Log.WarnContext(ctx, "marks of a collection are damaged and count for nothing", "key", run, "error", err)
		if c.opts.DryRun {
			return nil
		}
		return c.repo.Bucket.Delete(ctx, run)
	}
	ripe := c.now.Sub(m.Time) >= c.opts.Grace
	var remove []string
	for _, key := range m.Keys {
		size, still := c.candidates[key]
		switch {
		case !still: // referred to again, or gone
		case ripe:
			remove = append(remove, key)
			c.out.Bytes += size
			delete(c.candidates, key)
		default:
			pending[key] = true
		}
	}
	if !ripe || c.opts.DryRun {
		return nil
	}
	// Manifests first: none may be left that refers to a pack that is gone.
	slices.SortStableFunc(remove, func(a, b string) int {
		return cmp.Compare(boolInt(strings.HasPrefix(a, c.tenant+"/p/")), boolInt(strings.HasPrefix(b, c.tenant+"/p/")))
	})
	c.out.Removed += len(remove)
	return c.repo.Bucket.Delete(ctx, append(remove, run)...)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
