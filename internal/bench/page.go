package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptrace"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codefleet/codefleet/client"
)

// What the scenario page measures.
const (
	pageStep    = 1000             // waiting tasks for each unit of -n; the targets are for -n 100
	pageSamples = 50               // samples of each page
	pageEnded   = 100              // tasks that have ended: as many as a list shows
	openPages   = 200              // pages that are open at the same time
	openTime    = 10 * time.Second // how long they are observed: without changes, then with one each second
)

// page measures the web page of a fleet with many tasks, and with many open pages.
func (b *Bench) page(ctx context.Context) (err error) {
	u, err := b.startUp(ctx, b.NewDir())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, u.Stop()) }()
	c, err := Connect(ctx, u.Fleet)
	if err != nil {
		return err
	}
	defer c.Close()
	queued, ended, err := b.pageTasks(ctx, c)
	if err != nil {
		return err
	}
	v, err := newVisitor(ctx, c)
	if err != nil {
		return err
	}
	if err := b.firstBytes(ctx, c, v, queued, ended); err != nil {
		return err
	}
	return b.observeOpenPages(ctx, u.PID(), c, v)
}

// pageTasks submits tasks to a task pool without workers, and then tasks that end, so that lists begin with them. It
// returns a task of each kind. It submits over HTTP, which creates the records: all tasks have one when it returns.
func (b *Bench) pageTasks(ctx context.Context, c *client.Client) (queued, ended string, err error) {
	tasks := b.N * pageStep
	for done := 0; done < tasks; done += pageStep {
		b.Progress(fmt.Sprintf("page: task %d of %d", done, tasks))
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(submitters)
		for range pageStep {
			g.Go(func() error {
				_, err := c.Submit(ctx, client.Submission{Task: client.Task{Code: SmallestProgram, Pool: "none"}})
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return "", "", err
		}
	}
	last, err := c.Submit(ctx, client.Submission{Task: client.Task{Code: SmallestProgram, Pool: "none"}})
	if err != nil {
		return "", "", err
	}
	for range pageEnded {
		r, err := c.Run(ctx, client.Submission{Task: client.Task{Code: SmallestProgram}})
		if err != nil {
			return "", "", err
		}
		ended = r.TaskID
	}
	return last.TaskID, ended, nil
}

// visitor is a browser that has logged in.
type visitor struct {
	base string // the URL of the page, without a path
	http http.Client
}

// newVisitor logs in with a page link.
func newVisitor(ctx context.Context, c *client.Client) (*visitor, error) {
	link, err := c.PageLink(ctx)
	if err != nil {
		return nil, err
	}
	base, code, ok := strings.Cut(link, "/login?code=")
	if !ok {
		return nil, fmt.Errorf("the link to the page is %s", link)
	}
	v := &visitor{base: base}
	v.http.Transport = &http.Transport{MaxIdleConnsPerHost: openPages}
	if v.http.Jar, err = cookiejar.New(nil); err != nil {
		return nil, err
	}
	form := strings.NewReader(url.Values{"code": {code}}.Encode())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/login", form)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	_, _, err = v.read(r)
	return v, err
}

// get reads a page, and returns the time until its first byte in milliseconds, and its size.
func (v *visitor) get(ctx context.Context, path string) (first float64, size int64, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.base+path, nil)
	if err != nil {
		return 0, 0, err
	}
	return v.read(r)
}

// read sends a request and returns what get returns. A redirect to the login is an error.
func (v *visitor) read(r *http.Request) (first float64, size int64, err error) {
	began := time.Now()
	trace := &httptrace.ClientTrace{GotFirstResponseByte: func() { first = Since(began) }}
	resp, err := v.http.Do(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || strings.HasSuffix(resp.Request.URL.Path, "/login") {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		_, text, _ = bytes.Cut(text, []byte("<main"))
		return 0, 0, fmt.Errorf("read page %s: %s: %.300s", r.URL.Path, resp.Status, text)
	}
	size, err = io.Copy(io.Discard, resp.Body)
	return first, size, err
}

// firstBytes measures the time to the first byte of pages. The yardstick is the request that the page with the list
// makes.
func (b *Bench) firstBytes(ctx context.Context, c *client.Client, v *visitor, queued, ended string) error {
	page := func(name, path string) Series {
		return Series{name, "ms", func(ctx context.Context) (Sample, error) {
			first, _, err := v.get(ctx, path)
			return Sample{Value: first}, err
		}}
	}
	first, size, err := v.get(ctx, "/tasks?status=failed")
	if err != nil {
		return err
	}
	b.Note("first list by a status: %.0f ms; a list without tasks has %d bytes", first, size)
	err = b.SideBySide(
		ctx, Plan{Samples: pageSamples, PerTurn: 10},
		page("list of tasks", "/tasks"), page("list by a status", "/tasks?status=queued"),
		page("search", "/tasks?q=nothing"), page("task that has ended", "/tasks/"+ended),
		page("task that waits", "/tasks/"+queued),
		Timed("the same list over HTTP", func(ctx context.Context) error {
			_, err := c.List(ctx, client.ListOptions{})
			return err
		}),
	)
	b.AtMost("P1", fmt.Sprintf("list of %d tasks, first byte", b.N*pageStep),
		max(b.Median("list of tasks"), b.Median("list by a status")), 50, "ms")
	b.AtMost("P2", "a task's page, first byte",
		max(b.Median("task that has ended"), b.Median("task that waits")), 30, "ms")
	return err
}

// observeOpenPages measures what many open lists cost the fleet's process: while nothing changes, and while a task per
// second makes each of them refresh.
func (b *Bench) observeOpenPages(ctx context.Context, pid int, c *client.Client, v *visitor) error {
	before := Resident(pid)
	pages, ctx := errgroup.WithContext(ctx)
	ctx, closeAll := context.WithCancel(ctx)
	defer closeAll()
	hello := make(chan struct{}, openPages)
	for range openPages {
		pages.Go(func() error {
			err := v.follow(ctx, func() { hello <- struct{}{} })
			if err != nil && ctx.Err() == nil {
				return err
			}
			return nil // it was closed
		})
	}
	for range openPages {
		select {
		case <-hello:
		case <-ctx.Done():
			cause := context.Cause(ctx)
			closeAll()
			return cmp.Or(pages.Wait(), cause)
		}
	}
	measure := func(what string, change func() error) error {
		b.Progress("page: " + what)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		start, used := time.Now(), processorTime(pid)
		for time.Since(start) < openTime {
			if err := change(); err != nil {
				return err
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		used = processorTime(pid) - used
		b.Add("processors, "+what, "%", 100*used.Seconds()/time.Since(start).Seconds())
		b.Add("memory, "+what, "MB", Resident(pid)-before)
		return nil
	}
	err := measure(fmt.Sprintf("%d open lists", openPages), func() error { return nil })
	if err == nil {
		err = measure(fmt.Sprintf("%d open lists and a task per second", openPages), func() error {
			_, err := c.Submit(ctx, client.Submission{Task: client.Task{Code: SmallestProgram, Pool: "none"}})
			return err
		})
	}
	closeAll()
	b.Summarise()
	return errors.Join(err, pages.Wait())
}

// follow keeps a list open as a browser does: it reads the list again at the event hello, with which the stream begins,
// and after each change. When it has read the list after hello, it calls opened. It returns an error when the stream
// ends.
func (v *visitor) follow(ctx context.Context, opened func()) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.base+"/live", nil)
	if err != nil {
		return err
	}
	resp, err := v.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, ok := strings.CutPrefix(lines.Text(), "event: ")
		if !ok {
			continue
		}
		if _, _, err := v.get(ctx, "/tasks"); err != nil {
			return err
		}
		if name == "hello" {
			opened()
		}
	}
	return errors.Join(lines.Err(), errors.New("the stream of changes has ended"))
}

// processorTime returns the processor time that a process has used, or 0 if it has ended.
func processorTime(pid int) time.Duration {
	const tick = time.Second / 100 // the unit of /proc on all Linux architectures
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // the name in parentheses may contain any character
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(string(fields[11]))
	system, _ := strconv.Atoi(string(fields[12]))
	return time.Duration(user+system) * tick
}
