package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/schemas"
)

// process is a process of the modelled fleet. Its operations are the real code. They run in a goroutine that stops
// before each effect on the queue and before each access to HEAD, until the model lets it continue.
type process struct {
	world  *world
	name   string
	client *Client
	turn   chan struct{}
	parked chan string // the effect before which the operation has stopped; "" if it has ended

	// Of the current operation.
	at      string     // the effect before which it has stopped; "" if there is no operation
	ack     *nats.Msg  // the acknowledgement, if the effect in at is one; otherwise nil
	killed  bool       // the operation ends at its next effect
	outcome handlerEnd // how the handler ends

	// Of a worker.
	worker        *Worker
	store         *state.Store
	acks          chan *nats.Msg // acknowledgements on their way to the server
	inbox         string         // to which the worker sends them
	reply         string         // to which they are forwarded
	redelivered   bool           // the server has delivered the message again
	ended         bool           // the worker has acknowledged or requeued the message
	sentHeartbeat bool           // the worker has sent a heartbeat after the task was cancelled
	runs          int

	fetches   int
	checksOut bool // a checkout is running; its read of HEAD is not an effect of its own, so gatedHead lets it pass
}

// handlerEnd is how the program of a run ends.
type handlerEnd int

const (
	commits     handlerEnd = iota // its changes are committed
	inDoubt                       // its changes are committed, but the response is lost
	breaks                        // the fleet could not run it
	nothingDone                   // it changes nothing
)

func (h handlerEnd) String() string {
	return [...]string{"commits", "commits without a response", "breaks", "changes nothing"}[h]
}

func newProcess(t testing.TB, w *world, f *fleet, name string) *process {
	t.Helper()
	p := &process{
		world: w, name: name, client: connect(t, f.opts), turn: make(chan struct{}), parked: make(chan string),
		acks: make(chan *nats.Msg, 64),
	}
	p.inbox = p.client.nc.NewInbox()
	p.client.js = gatedQueue{p.client.js, p}
	if _, err := p.client.nc.ChanSubscribe(p.inbox, p.acks); err != nil {
		t.Fatal(err)
	}
	return p
}

// reset prepares the process for another path.
func (p *process) reset() {
	p.killed, p.redelivered, p.ended, p.sentHeartbeat = false, false, false, false
	p.runs, p.fetches, p.worker, p.reply = 0, 0, nil, ""
	p.client.misses.Store(maxMisses + 1) // Submit does not wait for a claim
}

func (p *process) busy() bool { return p.at != "" }

// start begins an operation. It runs up to its first effect.
func (p *process) start(op func(ctx context.Context)) {
	go func() {
		defer func() { p.parked <- "" }()
		op(context.Background())
	}()
	p.wait()
}

// step lets the operation continue up to its next effect.
func (p *process) step() {
	if m := p.ack; m == nil {
		p.turn <- struct{}{}
	} else {
		for p.ack = nil; len(p.acks) > 0; {
			if again := <-p.acks; again.Reply != "" { // the process has repeated its request
				m = again
			}
		}
		response := []byte("+OK")
		if !p.killed {
			response = p.world.acknowledge(p.reply, m.Data)
			p.ended = true
		}
		p.world.must(m.Respond(response))
	}
	p.wait()
}

// wait waits until the operation stops or ends.
func (p *process) wait() {
	hangs := time.After(2 * requestTimeout)
	for {
		select {
		case p.at = <-p.parked:
			if p.at == "" {
				p.flush()
			}
			return
		case m := <-p.acks:
			if p.forward(m) {
				return
			}
		case <-hangs:
			p.world.must(fmt.Errorf("process %s hangs", p.name))
			p.at = ""
			return
		}
	}
}

// flush forwards what the process has sent without waiting for the server.
func (p *process) flush() {
	p.world.must(p.client.nc.Flush())
	for len(p.acks) > 0 {
		if p.forward(<-p.acks) { // repeated, because the first one took long
			p.world.acknowledge(p.reply, p.ack.Data)
			p.ack, p.at = nil, ""
		}
	}
}

// forward handles a message that the process sent to its inbox. It keeps an acknowledgement for which the process
// waits, and reports true. It forwards a -NAK to the server, and drops all other messages.
func (p *process) forward(m *nats.Msg) bool {
	switch {
	case m.Reply != "":
		p.ack, p.at = m, "acknowledge"
		return true
	case strings.HasPrefix(string(m.Data), "-NAK") && !p.killed:
		p.world.acknowledge(p.reply, []byte("-NAK"))
		p.world.deliverable++
		p.ended = true
	}
	return false
}

// gate stops the process before an effect. It ends the goroutine if the process is killed.
func (p *process) gate(effect string) {
	if !p.killed {
		p.parked <- effect
		<-p.turn
	}
	if p.killed {
		runtime.Goexit()
	}
}

// kill ends the process before its next effect.
func (p *process) kill() {
	p.killed = true
	for p.busy() {
		p.step()
	}
	if p.worker != nil {
		for _, l := range p.worker.leases.held {
			l.stop()
			l.wg.Wait()
		}
		p.worker.lanes.close()
	}
}

// fetch begins to process the next message.
func (p *process) fetch(ctx context.Context) {
	var m *message
	// A busy server may need longer than one request waits.
	for began := time.Now(); m == nil && p.world.has(streamTasks, p.world.lane.subject()); {
		var err error
		if m, err = p.worker.lanes.fetch(ctx, ctx, p.world.lane); err != nil {
			p.world.must(err)
			return
		}
		if m == nil && p.world.held() && time.Since(began) > 200*time.Millisecond {
			break // the other worker has the only message
		}
		if m == nil && time.Since(began) > requestTimeout {
			p.world.must(errors.New("no worker has the message, but the server does not deliver it"))
			return
		}
	}
	if m == nil { // its task was cancelled, or another worker's acknowledgement came late
		p.world.deliverable = 0
		return
	}
	p.world.deliverable--
	p.reply, p.redelivered, p.ended, m.msg.Reply = m.msg.Reply, false, false, p.inbox
	p.worker.process(ctx, ctx, m, func(lane, time.Duration) {})
}

// holds reports whether the worker has a message that the server delivers again after the ack wait. A worker that has
// lost its lease ends without an acknowledgement.
func (p *process) holds() bool { return p.reply != "" && !p.redelivered && !p.ended }

// redeliver makes the server deliver the worker's message again, as if the ack wait had passed. The worker does not
// learn of it.
func (p *process) redeliver() {
	p.redelivered = true
	p.world.acknowledge(p.reply, []byte("-NAK"))
	p.world.deliverable++
}

// heartbeat is a heartbeat of the worker's lease.
func (p *process) heartbeat() {
	p.sentHeartbeat = true
	l := p.lease()
	if l == nil {
		return
	}
	if err := l.heartbeat(); errors.Is(err, ErrLeaseLost) {
		l.cancel(ErrLeaseLost)
	}
}

func (p *process) lease() *lease { return p.worker.leases.held[p.world.lane.tenant+"."+p.world.task] }

// handle is the worker's handler: it does with the workspace what a pipeline does. Nothing interrupts its
// commit, not even a lost lease, unlike in the pipeline.
func (p *process) handle(ctx context.Context, j *Job) (*schemas.Result, error) {
	p.runs++
	if j.Record.Run > 1 {
		c, err := p.store.Applied(ctx, p.world.ref, j.Record.TaskID, j.FirstClaim)
		if err != nil || c != nil {
			return committedResult(c), err
		}
	}
	p.gate(programGate)
	if p.outcome == breaks {
		return nil, errors.New("the box is broken")
	}
	dir, err := os.MkdirTemp(p.world.dir, "tree")
	if err != nil {
		return nil, err
	}
	defer func() { p.world.must(os.RemoveAll(dir)) }()
	tree, err := p.store.Tree(dir, p.world.ref)
	if err != nil {
		return nil, err
	}
	defer func() { p.world.must(tree.Close()) }()
	p.checksOut = true
	_, err = p.store.Checkout(ctx, tree, nil)
	p.checksOut = false
	if err != nil {
		return nil, err
	}
	if p.outcome != nothingDone {
		content := fmt.Sprintf("%s of %s", j.Record.TaskID, p.name)
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c, err := p.store.Commit(context.WithoutCancel(ctx), tree, state.CommitOptions{
		TaskID: j.Record.TaskID, Attempt: j.Record.Run, Since: j.FirstClaim, Result: json.RawMessage(`"committed"`),
	})
	switch {
	case err != nil:
		return nil, err
	case p.outcome == inDoubt:
		return nil, errors.New("the store did not respond")
	case c.NoChange:
		return &schemas.Result{Status: schemas.Succeeded}, nil
	}
	return committedResult(&c), nil
}

// fence is the worker's Hooks.Fence.
func (p *process) fence(ctx context.Context, j *Job) (*schemas.Result, error) {
	if p.world.mutant == mutantOnlyLooks {
		c, err := p.store.Applied(ctx, p.world.ref, j.Record.TaskID, j.FirstClaim)
		return committedResult(c), err
	}
	c, err := p.store.Fence(ctx, p.world.ref, j.Record.TaskID, j.Record.Run, j.FirstClaim)
	return committedResult(c), err
}

func committedResult(c *state.Commit) *schemas.Result {
	if c == nil {
		return nil
	}
	return &schemas.Result{
		Status: schemas.Succeeded, Workspace: schemas.WorkspaceChange{Generation: c.Generation, Changed: c.Changed},
	}
}

// gatedHead stops a process before it reads or writes HEAD.
type gatedHead struct {
	objects.Objects
	p *process
}

func (g gatedHead) isHead(key string) bool { return key == g.p.world.ref.HeadKey() }

// Get implements objects.Objects.
func (g gatedHead) Get(ctx context.Context, key string, opts objects.GetOptions) (objects.Object, error) {
	if g.isHead(key) && !g.p.checksOut {
		g.p.gate("read HEAD")
	}
	return g.Objects.Get(ctx, key, opts)
}

// CompareAndSwap implements objects.Objects.
func (g gatedHead) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	if g.isHead(key) {
		g.p.gate("swap HEAD")
	}
	return g.Objects.CompareAndSwap(ctx, key, old, data)
}

// gatedQueue stops a process before each write to a stream.
type gatedQueue struct {
	jetstream.JetStream
	p *process
}

// PublishMsg implements jetstream.Publisher.
func (g gatedQueue) PublishMsg(
	ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt,
) (*jetstream.PubAck, error) {
	kind := kindOf(m.Subject)
	g.p.gate("write " + kind)
	ack, err := g.JetStream.PublishMsg(ctx, m, opts...)
	if err == nil && !ack.Duplicate {
		g.p.world.written(kind)
	}
	return ack, err
}

// Stream implements jetstream.StreamManager.
func (g gatedQueue) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	s, err := g.JetStream.Stream(ctx, name)
	return gatedStream{s, g.p}, err
}

// gatedStream stops a process before it deletes messages.
type gatedStream struct {
	jetstream.Stream
	p *process
}

// DeleteMsg implements jetstream.Stream.
func (g gatedStream) DeleteMsg(ctx context.Context, seq uint64) error {
	g.p.gate("delete message")
	return g.Stream.DeleteMsg(ctx, seq)
}

// Purge implements jetstream.Stream.
func (g gatedStream) Purge(ctx context.Context, opts ...jetstream.StreamPurgeOpt) error {
	g.p.gate("delete messages")
	return g.Stream.Purge(ctx, opts...)
}

// kindOf returns the kind of the messages on a subject.
func kindOf(subject string) string {
	for prefix, kind := range map[string]string{
		"tasks.": "message", recordPrefix: "record", "dlq.": "dead letter", "delayed.": "timer",
	} {
		if strings.HasPrefix(subject, prefix) {
			return kind
		}
	}
	return subject
}
