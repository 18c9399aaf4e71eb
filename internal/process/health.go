package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/text"
)

// healthLimit is how long the checks for one request for /healthz may take together.
const healthLimit = 2 * time.Second

// checks are the checks of /healthz.
type checks struct {
	mu     sync.Mutex
	byName map[string]func(context.Context) error
}

// Check adds a check to /healthz, or replaces the check with this name. check tests a part of the fleet that this
// process needs; its error says why the part does not work.
func (p *Process) Check(name string, check func(context.Context) error) {
	p.checks.mu.Lock()
	defer p.checks.mu.Unlock()
	if p.checks.byName == nil {
		p.checks.byName = map[string]func(context.Context) error{}
	}
	p.checks.byName[name] = check
}

// ErrStarting is the result of checking a part of the fleet that this process has not reached yet.
var ErrStarting = errors.New("not reached yet")

// ServeHTTP responds with 200, or with 503 and one line for each check that fails.
func (c *checks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), healthLimit)
	defer cancel()
	c.mu.Lock()
	all := maps.Clone(c.byName)
	c.mu.Unlock()
	names := slices.Sorted(maps.Keys(all))
	problems := make([]string, len(names))
	var running sync.WaitGroup
	for i, name := range names {
		running.Go(func() {
			if err := all[name](ctx); err != nil {
				problems[i] = name + ": " + text.OneLine(err.Error()) + "\n"
			}
		})
	}
	running.Wait()
	body := strings.Join(problems, "")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if body == "" {
		fmt.Fprintln(w, "ok")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprint(w, body)
}
