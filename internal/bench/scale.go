package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/schemas"
)

// What the scenario scale has per sample. The target is for 100 samples.
const (
	idleTenants = 100  // tenants with one queued task each
	queuedTasks = 2000 // tasks queued by one tenant
	waiting     = 20   // callers that wait, each for a task of its own
	singles     = 100  // tasks that are submitted one after the other, in all
)

// scale measures a fleet with many tenants, and then one with many queued tasks: memory, start and submissions while
// the fleet is paused. In the second fleet it also measures how long tasks of high priority wait beside the queued
// ones. A third fleet has many callers that wait.
func (b *Bench) scale(ctx context.Context) error {
	tenants, tasks := b.N*idleTenants, b.N*queuedTasks
	many := queueSize{fmt.Sprintf("%d tenants with a task each", tenants), tenants, tenants}
	memory, err := b.fill(ctx, many)
	if err != nil {
		return err
	}
	long := queueSize{fmt.Sprintf("%d tasks queued", tasks), 0, tasks}
	if _, err := b.fill(ctx, long); err != nil {
		return err
	}
	b.Summarise()
	b.AtMost("G13", fmt.Sprintf("memory of up with %d tenants with a queued task each", tenants), memory, 500, "MB")
	return b.waitingCallers(ctx, b.N*waiting)
}

// queueSize is how many tasks are queued, and for how many new tenants. If tenants is 0, all tasks are the first
// tenant's.
type queueSize struct {
	name           string
	tenants, tasks int
}

// pausedFleet is a process of `codefleet up`, with an operator's client and a connection to the queue.
type pausedFleet struct {
	*upChild
	c *client.Client
	q *jobs.Client

	tenant string // the fleet's first tenant
}

// startPaused starts `codefleet up`, whose queue has room for twice the given number of tasks, and pauses the fleet.
func (b *Bench) startPaused(ctx context.Context, data string, tasks int) (f *pausedFleet, err error) {
	u, err := b.startUp(ctx, data, fmt.Sprintf("CODEFLEET_QUEUE_BACKLOG=%d", 2*tasks))
	if err != nil {
		return nil, err
	}
	f = &pausedFleet{upChild: u}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop())
		}
	}()
	file, err := config.ReadFleetFile(u.Fleet)
	if err != nil {
		return f, err
	}
	f.tenant = file.Tenant
	if f.q, err = connectQueue(ctx, file.NATS); err != nil {
		return f, err
	}
	if f.c, err = Connect(ctx, u.Fleet); err != nil {
		return f, err
	}
	_, err = f.c.Pause(ctx, schemas.PauseFleet, "benchmark")
	return f, err
}

func (f *pausedFleet) stop() error {
	if f.q != nil {
		f.q.Close()
	}
	var err error
	if f.c != nil {
		err = f.c.Close()
	}
	return errors.Join(err, f.Stop())
}

// fill queues tasks in a paused fleet and restarts it. If they are the first tenant's, it also measures claims, before
// any task is queued and after the restart. It returns the larger of the memory before and after the restart.
func (b *Bench) fill(ctx context.Context, size queueSize) (memory float64, err error) {
	data := b.NewDir()
	f, err := b.startPaused(ctx, data, size.tasks)
	if err != nil {
		return 0, err
	}
	b.Add("memory before", "MB", Resident(f.PID()))
	if size.tenants == 0 {
		err = b.claims(ctx, f, "wait of a task, nothing queued")
	}
	if err == nil {
		err = b.queueUp(ctx, f, size)
	}
	if err != nil {
		return 0, errors.Join(err, f.stop())
	}
	memory = Resident(f.PID())
	b.Add(size.name+": memory", "MB", memory)
	if err := f.stop(); err != nil {
		return 0, err
	}
	b.Progress("scale: restart with " + size.name)
	began := time.Now()
	if f, err = b.startPaused(ctx, data, size.tasks); err != nil {
		return 0, err
	}
	b.Add(size.name+": start", "s", time.Since(began).Seconds())
	restarted := Resident(f.PID())
	b.Add(size.name+": memory after the start", "MB", restarted)
	if size.tenants == 0 {
		err = b.claims(ctx, f, size.name+": wait of a task with high priority")
	}
	return max(memory, restarted), errors.Join(err, f.stop())
}

// queueUp creates tenants and submits their tasks: many at once, and then some one after the other.
func (b *Bench) queueUp(ctx context.Context, f *pausedFleet, size queueSize) error {
	b.Progress("scale: create the tenants of " + size.name)
	creating, each := errgroup.WithContext(ctx)
	creating.SetLimit(submitters)
	for i := range size.tenants {
		creating.Go(func() error {
			_, err := f.c.CreateTenant(each, tenantName(i))
			return err
		})
	}
	if err := creating.Wait(); err != nil {
		return err
	}
	tenant := func(i int) string {
		if size.tenants == 0 {
			return f.tenant
		}
		return tenantName(i % size.tenants)
	}
	began := time.Now()
	for done := 0; done < size.tasks; done += queueStep {
		b.Progress(fmt.Sprintf("scale: task %d of %d", done, size.tasks))
		rest := func(i int) string { return tenant(done + i) }
		if _, err := submitAll(ctx, f.q, min(queueStep, size.tasks-done), rest); err != nil {
			return err
		}
	}
	b.Add(size.name+": submission", "tasks/s", float64(size.tasks)/time.Since(began).Seconds())
	for i := range singles {
		began := time.Now()
		if _, err := submitAll(ctx, f.q, 1, func(int) string { return tenant(i) }); err != nil {
			return err
		}
		b.Add(size.name+": one submission", "ms", Since(began))
	}
	return nil
}

// claims resumes the fleet, measures how long tasks of high priority wait until they are claimed, and pauses it again.
func (b *Bench) claims(ctx context.Context, f *pausedFleet, name string) error {
	if _, err := f.c.Resume(ctx, schemas.PauseFleet); err != nil {
		return err
	}
	for range singles {
		b.Progress("scale: " + name)
		rec, err := f.c.Run(ctx, client.Submission{Task: client.Task{Code: SmallestProgram}, Priority: "high"})
		if err != nil {
			return err
		}
		if rec.Status != client.Succeeded {
			return fmt.Errorf("task %s ended %s", rec.TaskID, rec.Status)
		}
		b.Add(name, "ms", rec.Result.TimingMS.Queued)
	}
	_, err := f.c.Pause(ctx, schemas.PauseFleet, "benchmark")
	return err
}
