package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/process"
	"github.com/codefleet/codefleet/internal/up"
)

const (
	burst    = 100 // tasks in one sample
	tenants  = 50
	fewBoxes = 3 // boxes for all tenants together
)

// throughput measures tasks per second. Each caller submits a task as soon as it has the result of the one before.
func (b *Bench) throughput(ctx context.Context) error {
	if err := b.oneTenant(ctx); err != nil {
		return err
	}
	share, err := b.manyTenants(ctx, "", func(*config.Config) {})
	if err != nil {
		return err
	}
	b.AtLeast("N3m", "50 tenants ÷ one tenant", share, 90)
	share, err = b.manyTenants(ctx, fmt.Sprintf(" on %d boxes", fewBoxes), func(c *config.Config) {
		c.Worker.Slots, c.Execution.MaxBoxes, c.Optimizations.SandboxPoolSize = fewBoxes, fewBoxes, fewBoxes
	})
	if err != nil {
		return err
	}
	b.Note("N3m: %d tasks per sample, %d callers, each of a tenant of its own, or all of one tenant", burst, tenants)
	b.Note("N3m: on %d boxes in all, the share is %.0f %%", fewBoxes, share)
	return nil
}

// oneTenant compares a fleet with a pool of the same size, which runs as many programs at once.
func (b *Bench) oneTenant(ctx context.Context) (err error) {
	var slots, maxBoxes int
	f, stop, err := b.StartFleet(ctx, func(c *config.Config) {
		slots = c.Slots()
		maxBoxes = slots + readyBoxes
		c.Execution.MaxBoxes = maxBoxes
	}, process.RunWorker)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	pool, stopPool, err := b.startPool(ctx, readyBoxes, maxBoxes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopPool()) }()
	c, err := tenantClient(ctx, f, f.File.Tenant)
	if err != nil {
		return err
	}
	defer c.Close()

	fleet := Rate("fleet", 2*slots, burst, func(ctx context.Context, _ int) error { return runSmallest(ctx, c) })
	direct := Rate("pool alone", slots, burst, func(ctx context.Context, _ int) error {
		box, err := pool.Acquire(ctx, executor.Key{Tenant: "bench"}, executor.Limits{}, nil)
		if err != nil {
			return err
		}
		defer box.Release()
		return runDirect(ctx, box)
	})
	if err := b.SideBySide(ctx, Plan{Samples: b.N, PerTurn: 1}, fleet, direct); err != nil {
		return err
	}
	b.AtLeast("N3", "fleet ÷ pool alone", 100*b.Median("fleet")/b.Median("pool alone"), 80)
	b.Note("N3: %d tasks per sample, %d slots, %d callers", burst, slots, 2*slots)
	return nil
}

// manyTenants returns the throughput of many tenants in percent of one tenant's, in the same fleet. change modifies the
// fleet's settings, and where is appended to the names of the series.
func (b *Bench) manyTenants(ctx context.Context, where string, change func(*config.Config)) (_ float64, err error) {
	f, stop, err := b.StartFleet(ctx, func(c *config.Config) {
		change(c)
		c.Tenants = map[string]config.Tenant{}
		for i := range tenants + 1 {
			c.Tenants[tenantName(i)] = config.Tenant{MaxRunning: c.Slots()}
		}
	}, runSharedWorker)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	clients, err := tenantClients(ctx, f)
	for _, c := range clients {
		defer c.Close()
	}
	if err != nil {
		return 0, err
	}
	one := Rate("one tenant"+where, tenants, burst,
		func(ctx context.Context, _ int) error { return runSmallest(ctx, clients[tenants]) })
	many := Rate("50 tenants"+where, tenants, burst,
		func(ctx context.Context, caller int) error { return runSmallest(ctx, clients[caller]) })
	if err := b.SideBySide(ctx, Plan{Samples: max(1, b.N/2), PerTurn: 1}, one, many); err != nil {
		return 0, err
	}
	return 100 * b.Median(many.Name) / b.Median(one.Name), nil
}

func tenantName(i int) string { return fmt.Sprintf("t%02d", i) }

// tenantClients returns a client of each tenant. After an error, it returns the clients that it created before.
func tenantClients(ctx context.Context, f *up.Fleet) (list []*client.Client, err error) {
	for i := range tenants + 1 {
		c, err := tenantClient(ctx, f, tenantName(i))
		if err != nil {
			return list, err
		}
		list = append(list, c)
	}
	return list, nil
}

// runSmallest runs a task with the smallest program.
func runSmallest(ctx context.Context, c *client.Client) error {
	_, err := RunTask(ctx, c, client.Submission{Task: client.Task{Code: SmallestProgram}}, SmallestOutput)
	return err
}

// Rate returns a series of calls per second. For each sample, the callers run concurrently until they have made the
// given number of calls together.
func Rate(name string, callers, calls int, call func(ctx context.Context, caller int) error) Series {
	return Series{name, "tasks/s", func(ctx context.Context) (Sample, error) {
		var started atomic.Int64
		g, ctx := errgroup.WithContext(ctx)
		began := time.Now()
		for caller := range callers {
			g.Go(func() error {
				for started.Add(1) <= int64(calls) {
					if err := call(ctx, caller); err != nil {
						return err
					}
				}
				return nil
			})
		}
		err := g.Wait()
		return Sample{Value: float64(calls) / time.Since(began).Seconds()}, err
	}}
}
