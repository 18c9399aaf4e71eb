package maintenance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state/format"
)

// sweep removes the candidates that an earlier run marked at least the grace time ago, and marks the others.
func (c *collector) sweep(ctx context.Context) error {
	pending := map[string]bool{}
	prefix := format.MarksPrefix(c.tenant)
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
	data, err := json.Marshal(format.Marks{Time: c.now.UTC(), Keys: fresh})
	if err != nil {
		return err
	}
	key := prefix + fmt.Sprintf("%012d-%s", c.now.Unix(), strings.ToLower(format.NewCommitID()))
	return c.repo.Bucket.Put(ctx, key, data, objects.Sum(data))
}

// sweepRun removes the objects that a run marked, or adds them to pending if the run is too recent.
func (c *collector) sweepRun(ctx context.Context, run string, pending map[string]bool) error {
	obj, err := c.repo.Bucket.Get(ctx, run, objects.GetOptions{})
	if errors.Is(err, objects.ErrNotFound) {
		return nil // a concurrent run has removed it
	}
	if err != nil {
		return err
	}
	var m format.Marks
	if err := json.Unmarshal(obj.Data, &m); err != nil { // a later run marks the objects again
		c.repo.Options.Log.WarnContext(ctx, "damaged garbage collection marks ignored", "key", run, "error", err)
		if c.opts.DryRun {
			return nil
		}
		return c.repo.Bucket.Delete(ctx, run)
	}
	due := c.now.Sub(m.Time) >= c.opts.Grace
	var remove []string
	var bytes int64
	for _, key := range m.Keys {
		size, ok := c.candidates[key]
		switch {
		case !ok: // referenced again, or removed
		case due:
			remove = append(remove, key)
			bytes += size
			delete(c.candidates, key)
		default:
			pending[key] = true
		}
	}
	if !due {
		return nil
	}
	// Packs come last, so that no manifest refers to a removed pack.
	isPack := func(key string) bool { return strings.HasPrefix(key, format.PackPrefix(c.tenant)) }
	packs := slices.DeleteFunc(slices.Clone(remove), func(key string) bool { return !isPack(key) })
	remove = append(slices.DeleteFunc(remove, isPack), packs...)
	if !c.opts.DryRun {
		if err := c.repo.Bucket.Delete(ctx, remove...); err != nil {
			return err
		}
	}
	c.out.Removed += len(remove)
	c.out.Bytes += bytes
	if c.opts.DryRun {
		return nil
	}
	return c.repo.Bucket.Delete(ctx, run) // last: until then its objects count as marked, see repo.Repo.Marked
}
