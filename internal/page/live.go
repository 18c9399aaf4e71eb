package page

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/errcode"
)

const (
	pollTime      = time.Second      // between a feed's requests to the fleet
	heartbeatTime = 15 * time.Second // between comments on a silent stream
	maxStreams    = 1000             // open streams of a process; an open page of a task has two
	streamTime    = time.Hour        // a page connects again after this time
)

// feeds tell open pages when something that they show has changed. All pages with the same token share a feed, so the
// number of pages does not matter to the fleet.
type feeds struct {
	mu      sync.Mutex
	byToken map[[sha256.Size]byte]*feed
	streams int
}

// feed polls the fleet with one token, as long as it has subscribers.
type feed struct {
	subscribers map[chan struct{}]bool
	stop        context.CancelFunc
	begun       chan struct{} // closed after the first poll, or when follow ends
}

// openStream counts an open stream, until done is called. done is nil if too many streams are open.
func (fs *feeds) openStream() (done func()) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.streams >= maxStreams {
		return nil
	}
	fs.streams++
	return sync.OnceFunc(func() {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		fs.streams--
	})
}

// subscribe returns a feed, and a channel that receives a value after changes, until cancel is called. The channel is
// closed if the fleet refuses the token.
func (p *Page) subscribe(token string) (f *feed, changes <-chan struct{}, cancel func()) {
	key := sha256.Sum256([]byte(token))
	ch := make(chan struct{}, 1)
	fs := &p.feeds
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f = fs.byToken[key]
	if f == nil {
		ctx, stop := context.WithCancel(p.stopping)
		f = &feed{subscribers: map[chan struct{}]bool{}, stop: stop, begun: make(chan struct{})}
		fs.byToken[key] = f
		go p.follow(ctx, f, token) // ends with the last subscriber
	}
	f.subscribers[ch] = true
	return f, ch, sync.OnceFunc(func() {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		delete(f.subscribers, ch)
		if len(f.subscribers) == 0 {
			f.stop()
			if fs.byToken[key] == f {
				delete(fs.byToken, key)
			}
		}
	})
}

// follow polls the fleet, and notifies the subscribers of f when something has changed. If the fleet refuses the token,
// it ends their streams.
func (p *Page) follow(ctx context.Context, f *feed, token string) {
	begin := sync.OnceFunc(func() { close(f.begun) })
	defer begin()
	c, err := p.client(ctx, token)
	if err != nil {
		return
	}
	var last uint64 // hash after the previous poll
	tick := time.NewTicker(pollTime)
	defer tick.Stop()
	for first := true; ; first = false {
		now, err := hashOf(ctx, c)
		if isCode(err, errcode.Unauthorized) { // the token was revoked, or has expired
			p.end(f, token)
			return
		}
		if err == nil && now != last && !first {
			p.feeds.mu.Lock()
			for ch := range f.subscribers {
				select {
				case ch <- struct{}{}:
				default: // it has not received the previous change yet, and will refresh then
				}
			}
			p.feeds.mu.Unlock()
		}
		if err == nil {
			last = now
		}
		begin()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// end ends the streams of a feed.
func (p *Page) end(f *feed, token string) {
	key := sha256.Sum256([]byte(token))
	p.feeds.mu.Lock()
	defer p.feeds.mu.Unlock()
	if p.feeds.byToken[key] == f {
		delete(p.feeds.byToken, key)
	}
	for ch := range f.subscribers {
		close(ch)
	}
	clear(f.subscribers)
}

// hashOf returns a hash of what pages show of the newest tasks, the pending approvals and the newest workflow runs.
func hashOf(ctx context.Context, c *client.Client) (uint64, error) {
	h := fnv.New64a()
	tasks, err := c.List(ctx, client.ListOptions{Limit: listLimit})
	if err != nil {
		return 0, err
	}
	for _, t := range tasks {
		fmt.Fprintln(h, t.TaskID, t.Status, t.Run, t.WaitsFor, len(t.Approvals))
	}
	waiting, err := c.Approvals(ctx)
	if err != nil {
		return 0, err
	}
	for _, a := range waiting {
		fmt.Fprintln(h, a.TaskID, a.Call)
	}
	runs, err := c.WorkflowRuns(ctx, listLimit)
	for _, r := range runs {
		fmt.Fprintln(h, r.RunID, r.Status)
		for _, s := range r.Steps {
			fmt.Fprintln(h, s.Status, s.Attempt)
			for _, item := range s.Items {
				fmt.Fprintln(h, item.Status)
			}
		}
	}
	return h.Sum64(), err
}

// stream is an event stream to a browser.
type stream struct {
	mu sync.Mutex // held while something is written
	w  http.ResponseWriter
	rc *http.ResponseController
}

func (q *request) stream() *stream {
	q.w.Header().Set("Content-Type", "text/event-stream")
	q.w.Header().Set("X-Accel-Buffering", "no")
	s := &stream{w: q.w, rc: http.NewResponseController(q.w)}
	_ = s.rc.SetWriteDeadline(time.Time{}) // not every ResponseWriter supports deadlines
	return s
}

// send sends an event. If id is not 0, the browser returns it as Last-Event-ID when it connects again.
func (s *stream) send(event string, id uint64, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if id > 0 {
		fmt.Fprintf(s.w, "id: %d\n", id)
	}
	if _, err = fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", event, text); err != nil {
		return err
	}
	return s.rc.Flush()
}

func (s *stream) heartbeat() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := fmt.Fprint(s.w, ":\n\n"); err != nil {
		return err
	}
	return s.rc.Flush()
}

// heartbeats sends heartbeats until ctx ends or one cannot be sent.
func (s *stream) heartbeats(ctx context.Context) {
	for clock.Sleep(ctx, heartbeatTime) == nil && s.heartbeat() == nil {
	}
}

var errBusy = &pageError{http.StatusServiceUnavailable, "Too many pages are open.", "Close some of them."}

// getLive tells a page when to refresh its live parts.
func getLive(q *request) error {
	done := q.p.feeds.openStream()
	if done == nil {
		return errBusy
	}
	defer done()
	f, changes, cancel := q.p.subscribe(q.s.Token)
	defer cancel()
	select { // wait for the first poll: the page refreshes when it gets hello, and so misses no earlier change
	case <-f.begun:
	case <-q.p.stopping.Done():
		return nil
	case <-q.ctx.Done():
		return nil
	}
	s := q.stream()
	if s.send("hello", 0, nil) != nil {
		return nil // the browser has disconnected
	}
	heartbeat := time.NewTicker(heartbeatTime)
	defer heartbeat.Stop()
	over := time.NewTimer(min(streamTime, time.Until(q.s.Expires)))
	defer over.Stop()
	for {
		var err error
		select {
		case _, open := <-changes:
			if !open {
				return nil // the page connects again, and gets the status 401
			}
			err = s.send("change", 0, nil)
		case <-heartbeat.C:
			err = s.heartbeat()
		case <-over.C:
			return nil
		case <-q.p.stopping.Done():
			return nil
		case <-q.ctx.Done():
			return nil
		}
		if err != nil {
			return nil
		}
	}
}

// getTaskStream sends the stages and the output of a task as they arrive, and finally the event "end".
func getTaskStream(q *request) error {
	done := q.p.feeds.openStream()
	if done == nil {
		return errBusy
	}
	defer done()
	after, _ := strconv.ParseUint(q.r.Header.Get("Last-Event-ID"), 10, 64) // 0, the beginning, without one
	ctx, cancel := context.WithTimeout(q.ctx, min(streamTime, time.Until(q.s.Expires)))
	defer cancel()
	defer context.AfterFunc(q.p.stopping, cancel)()
	if _, err := q.c.Get(ctx, q.r.PathValue("id")); err != nil {
		return err
	}
	s := q.stream()
	_ = s.heartbeat() // sends the header
	var beating sync.WaitGroup
	beating.Go(func() { s.heartbeats(ctx) })
	_, err := q.c.Watch(ctx, q.r.PathValue("id"), after, func(e client.Event) error {
		return s.send("progress", e.Seq, map[string]string{"stage": e.Stage, "stream": e.Stream, "text": e.Text})
	})
	if err == nil {
		_ = s.send("end", 0, nil)
	}
	cancel()
	beating.Wait()
	return nil
}

// getNumbers sends the values that the page of the fleet plots, and what else it shows of the workers, the task pools
// and the pauses. The stream of changes is about the tenant's tasks, and not for operators without a tenant.
func getNumbers(q *request) error {
	f, err := q.c.Fleet(q.ctx)
	if err != nil {
		return err
	}
	pauses, err := q.c.Pauses(q.ctx)
	if err != nil {
		return err
	}
	var numbers struct {
		Queued  int      `json:"queued"`
		Running int      `json:"running"`
		Slots   int      `json:"slots"`
		Oldest  float64  `json:"oldest"`
		Shown   []string `json:"shown"` // the page is refreshed when this changes
	}
	for _, b := range f.Backlog {
		numbers.Queued, numbers.Running = numbers.Queued+b.Queued, numbers.Running+b.Running
		numbers.Oldest = max(numbers.Oldest, b.OldestAgeS)
		numbers.Shown = append(numbers.Shown, fmt.Sprint("pool ", b.Pool, " ", b.Queued, " ", b.Running))
	}
	for _, w := range f.Workers {
		numbers.Slots += w.Slots
		numbers.Shown = append(numbers.Shown, fmt.Sprint("worker ", w.Name, " ", w.State, " ", w.Busy))
	}
	for _, p := range pauses {
		numbers.Shown = append(numbers.Shown, "paused "+p.Target)
	}
	slices.Sort(numbers.Shown)
	q.w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(q.w).Encode(numbers)
}

// statuses are all statuses of tasks, in the order in which a page offers them.
var statuses = []client.Status{
	client.Queued, client.Running, client.RetryWait, client.Succeeded, client.Failed, client.Blocked, client.Timeout,
	client.Cancelled, client.Expired, client.Dead,
}

func isStatus(s string) bool { return slices.Contains(statuses, client.Status(s)) }

// isCode reports whether err is the fleet's refusal with the code.
func isCode(err error, code string) bool {
	refused := new(client.APIError)
	return errors.As(err, &refused) && refused.Code == code
}
