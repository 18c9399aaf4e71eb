package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/clock"
)

// persister makes the writes on which a call depends: to the journal and the audit. The program must not fail
// because the queue is unreachable, so its calls wait. If a write still fails when the program's time is over,
// the run is lost: Execution.Close returns the error, and the task runs again. The run is also lost if the process
// exits first.
type persister struct {
	exit context.Context //nolint:containedctx // see Config.Exit
	mu   sync.Mutex
	err  error
}

const (
	writeTimeout = 10 * time.Second       // time limit of one try, which continues when the task is cancelled
	firstDelay   = 100 * time.Millisecond // delay after the first try; it doubles with each try
	maxDelay     = 2 * time.Second
)

// write calls put until it succeeds or returns ErrOvertaken, or until ctx or the process ends. It returns the last
// error.
func (p *persister) write(ctx context.Context, what string, put func(context.Context) error) error {
	for delay := firstDelay; ; delay = min(maxDelay, 2*delay) {
		tryCtx, cancel := p.tryContext(ctx)
		err := put(tryCtx)
		cancel()
		if err == nil || errors.Is(err, ErrOvertaken) {
			return err
		}
		if ctx.Err() == nil && p.exit.Err() == nil && clock.Sleep(ctx, delay) == nil {
			continue
		}
		err = fmt.Errorf("%s: %w", what, err)
		p.mu.Lock()
		p.err = errors.Join(p.err, err)
		p.mu.Unlock()
		return err
	}
}

// tryContext returns a context with ctx's values for one try of a write. It ends after writeTimeout or when the process
// exits, and not with ctx.
func (p *persister) tryContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	stop := context.AfterFunc(p.exit, cancel)
	return ctx, func() { stop(); cancel() }
}

// failure returns the errors of the writes that were abandoned.
func (p *persister) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// persistentAudit is an Audit that writes through a persister.
type persistentAudit struct {
	audit Audit
	*persister
}

func (a persistentAudit) Begin(ctx context.Context, r AuditRecord) error {
	return a.write(ctx, "audit a call", func(ctx context.Context) error { return a.audit.Begin(ctx, r) })
}

func (a persistentAudit) Decided(ctx context.Context, r AuditRecord) error {
	return a.write(ctx, "audit an approval", func(ctx context.Context) error { return a.audit.Decided(ctx, r) })
}

func (a persistentAudit) End(ctx context.Context, r AuditRecord) error {
	return a.write(ctx, "audit the end of a call", func(ctx context.Context) error { return a.audit.End(ctx, r) })
}
