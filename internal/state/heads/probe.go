package heads

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/objects"
)

// Capabilities describes what an object store supports, as Probe found out.
type Capabilities struct {
	Create  bool          // If-None-Match: * prevents overwriting
	Swap    bool          // If-Match rejects a stale ETag
	Atomic  bool          // if several writers race to replace an object, one wins
	First   bool          // if several writers race to create an object, one wins
	Verify  bool          // a body that does not match its SHA-256 is rejected
	Fresh   bool          // reads and listings return the last write
	Ranges  bool          // range reads work
	Latency time.Duration // median of one small request
	Summary string        // one sentence for people
}

const (
	probeWriters  = 8
	removeTimeout = 10 * time.Second
	probeBody     = "codefleet probe"
)

// Probe finds out what an object store supports, with about 30 small requests below _probe/. If the store ignores or
// rejects conditional writes, Probe returns objects.ErrUnsafe with the capabilities: on such a store, commits cannot be
// kept from overwriting each other. After any other error the capabilities are unknown.
func Probe(ctx context.Context, bucket objects.Objects) (Capabilities, error) {
	bucket = objects.WithRetry(bucket, objects.RetryPolicy{})
	p := &prober{bucket: bucket, prefix: "_probe/" + strings.ToLower(rand.Text()) + "/"}
	err := p.run(ctx)
	if err = errors.Join(err, p.clean(ctx)); err != nil {
		return p.caps, fmt.Errorf("probe object store: %w", err)
	}
	p.caps.Summary = p.caps.summary()
	if !p.caps.safe() {
		return p.caps, fmt.Errorf("%w: %s", objects.ErrUnsafe, p.caps.Summary)
	}
	return p.caps, nil
}

// safe reports whether conditional writes work.
func (c Capabilities) safe() bool { return c.Create && c.Swap && c.Atomic && c.First }

// CanCreate reports whether the head mode createonly is safe on the store.
func (c Capabilities) CanCreate() bool { return c.Create && c.First && c.Fresh }

func (c Capabilities) summary() string {
	var broken []string
	for _, check := range []struct {
		ok   bool
		text string
	}{
		{c.Create, "PUT with If-None-Match: * is rejected or overwrites"},
		{c.Swap, "PUT with If-Match is rejected or overwrites a newer object"},
		{c.Atomic && c.First || !c.Create || !c.Swap, "several racing conditional PUTs succeed"},
		{c.Fresh, "a read or listing after a write is stale"},
		{c.Verify, "a damaged upload is accepted"},
		{c.Ranges, "range reads are wrong"},
	} {
		if !check.ok {
			broken = append(broken, check.text)
		}
	}
	switch {
	case len(broken) == 0:
		return fmt.Sprintf("conditional writes are honoured, so any number of workers can commit at once; "+
			"a request takes %v", c.Latency.Round(10*time.Microsecond))
	case !c.safe():
		return "conditional writes are not honoured, so two workers would overwrite each other's commits: " +
			strings.Join(broken, "; ")
	default:
		return "conditional writes are honoured, but " + strings.Join(broken, "; ")
	}
}

// prober is one call of Probe.
type prober struct {
	bucket objects.Objects
	prefix string
	caps   Capabilities

	mu    sync.Mutex
	keys  []string        // of the objects that the probe wrote
	times []time.Duration // of the conditional writes
}

func (p *prober) run(ctx context.Context) error {
	for _, check := range []func(context.Context) error{p.swaps, p.race, p.reads, p.digest} {
		// A rejected condition is a finding.
		if err := check(ctx); err != nil && !errors.Is(err, objects.ErrUnsafe) {
			return err
		}
	}
	slices.Sort(p.times)
	p.caps.Latency = p.times[len(p.times)/2]
	return nil
}

// clean removes what the probe wrote.
func (p *prober) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	return p.bucket.Delete(ctx, p.keys...)
}

// swap attempts a conditional write. It returns the new ETag, and whether the write was accepted.
func (p *prober) swap(ctx context.Context, name, old, body string) (string, bool, error) {
	start := time.Now()
	key := p.prefix + name + Suffix
	etag, err := p.bucket.CompareAndSwap(ctx, key, old, []byte(body))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.times = append(p.times, time.Since(start))
	if !slices.Contains(p.keys, key) {
		p.keys = append(p.keys, key)
	}
	if errors.Is(err, objects.ErrConflict) {
		return "", false, nil
	}
	return etag, err == nil, err
}

// swaps finds out about Create and Swap, with one writer.
func (p *prober) swaps(ctx context.Context) error {
	first, ok, err := p.swap(ctx, "swap", "", "1")
	if err != nil {
		return err
	}
	if !ok {
		return errors.New("a new object cannot be created")
	}
	_, again, err := p.swap(ctx, "swap", "", "1")
	if err != nil {
		return err
	}
	p.caps.Create = !again
	second, ok, err := p.swap(ctx, "swap", first, "2")
	if err != nil {
		return err
	}
	_, stale, err := p.swap(ctx, "swap", first, "3")
	if err != nil {
		return err
	}
	_, absent, err := p.swap(ctx, "absent", first, "4")
	if err != nil {
		return err
	}
	p.caps.Swap = (ok || again) && !stale && !absent && second != first
	return nil
}

// race finds out about First and Atomic: several writers create one object at once, and then replace it.
func (p *prober) race(ctx context.Context) error {
	etag, wins, err := p.countWins(ctx, "")
	if err != nil {
		return err
	}
	p.caps.First = wins == 1
	_, wins, err = p.countWins(ctx, etag)
	p.caps.Atomic = err == nil && wins == 1
	return err
}

// countWins returns how many of several writers succeeded in replacing old.
func (p *prober) countWins(ctx context.Context, old string) (etag string, wins int, err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range probeWriters {
		wg.Go(func() {
			tag, ok, raceErr := p.swap(ctx, "race", old, fmt.Sprint(old, i))
			mu.Lock()
			defer mu.Unlock()
			err = errors.Join(err, raceErr)
			if ok {
				wins++
				etag = tag
			}
		})
	}
	wg.Wait()
	return etag, wins, err
}

// reads finds out about Fresh and Ranges.
func (p *prober) reads(ctx context.Context) error {
	key := p.prefix + "read"
	p.keys = append(p.keys, key)
	if err := p.bucket.Put(ctx, key, []byte(probeBody), objects.Sum([]byte(probeBody))); err != nil {
		return err
	}
	obj, err := p.bucket.Get(ctx, key, objects.GetOptions{})
	if err != nil && !errors.Is(err, objects.ErrNotFound) {
		return err
	}
	listed := false
	for info, err := range p.bucket.List(ctx, p.prefix, "") {
		if err != nil {
			return err
		}
		listed = listed || info.Key == key && info.Size == int64(len(probeBody))
	}
	_, err = p.bucket.Get(ctx, key, objects.GetOptions{IfNoneMatch: obj.ETag})
	p.caps.Fresh = listed && string(obj.Data) == probeBody && errors.Is(err, objects.ErrNotModified)
	part, err := p.bucket.Get(ctx, key, objects.GetOptions{Offset: 4, Length: 5})
	p.caps.Ranges = err == nil && string(part.Data) == probeBody[4:9]
	return nil
}

// digest finds out about Verify.
func (p *prober) digest(ctx context.Context) error {
	key := p.prefix + "digest"
	p.keys = append(p.keys, key)
	err := p.bucket.Put(ctx, key, []byte(probeBody), objects.Digest{})
	p.caps.Verify = err != nil
	if errors.Is(err, objects.ErrTemporary) {
		return err
	}
	return nil
}
