package ingest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codefleet/codefleet/internal/apierror"
	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/errcode"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/strictjson"
	"github.com/codefleet/codefleet/internal/tools"
)

// maxRegistrations is how many registrations of one tenant this process holds.
const maxRegistrations = 64

var maxTools = strictjson.MaxElements[tools.OfferedTool](tools.MaxOffered)

// registrationIn is the body of POST /v1/registrations.
type registrationIn struct {
	Server      string              `json:"server"`
	Title       string              `json:"title,omitempty"`
	Description string              `json:"description,omitempty"`
	Concurrency int                 `json:"concurrency,omitempty"` // calls at once; default 16
	Tools       []tools.OfferedTool `json:"tools"`
}

// registered is the first event of a registration's stream.
type registered struct {
	ID string `json:"id"`
}

// toolCall is the event for a call of a registered tool.
type toolCall struct {
	ID   string          `json:"id"`
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args"`
}

// toolAnswer is the answer to a call: a value, or the text of an error.
type toolAnswer struct {
	Call  string          `json:"call"`
	Value json.RawMessage `json:"value,omitempty"`
	Error *string         `json:"error,omitempty"` // may be empty, as str(ValueError()) in Python, or beside a value
}

// postRegistration registers tools of the tenant for as long as the response is open. The response is a stream of
// server-sent events: "registered" with the registration's id, and then "call" for each call. The client answers each
// call with postToolAnswer, at this process or at another one.
func (s *Server) postRegistration(w http.ResponseWriter, r *http.Request) error {
	offer, concurrency, err := s.readRegistration(w, r)
	if err != nil {
		return err
	}
	if err := s.checkTaken(r, offer); err != nil {
		return err
	}
	tenant := identityOf(r.Context()).tenant
	stored, _ := s.registrations.LoadOrStore(tenant, make(chan struct{}, maxRegistrations))
	ofTenant, _ := stored.(chan struct{})
	select {
	case ofTenant <- struct{}{}:
		defer func() { <-ofTenant }()
	default:
		return apierror.New(errcode.TooManyRegistrations, "this process already holds %d registrations of the tenant",
			maxRegistrations)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()

	g := &registration{
		id: strings.ToLower(rand.Text()), calls: make(chan toolCall), waiting: map[string]chan toolAnswer{},
	}
	closeMailbox, err := s.queue.OpenMailbox(tenant, g.id, g.deliver)
	if err != nil {
		return err
	}
	defer closeMailbox()
	stop, err := s.queue.ServeTools(g.service(ctx, tenant, offer, concurrency))
	if err != nil {
		return err
	}
	defer stop()
	defer cancel() // runs before stop, and ends calls in progress
	g.stream(ctx, cancel, newStream(w), s.o.Limits.Heartbeat)
	return nil // the response has begun, so it cannot become an error response
}

func (s *Server) readRegistration(w http.ResponseWriter, r *http.Request) (tools.Offer, int, error) {
	if ct := r.Header.Get("Content-Type"); !isJSON(ct) {
		return tools.Offer{}, 0, badMediaType(ct, "a registration is JSON")
	}
	body, err := s.readBody(w, r)
	if err != nil {
		return tools.Offer{}, 0, err
	}
	return decodeRegistration(body)
}

func decodeRegistration(body []byte) (tools.Offer, int, error) {
	var in registrationIn
	if err := strictjson.DecodeOpen(body, &in, maxTools); err != nil {
		return tools.Offer{}, 0, badJSON(body, err)
	}
	if path, err := in.check(); err != nil {
		e := apierror.New(errcode.BadData, "%s", err)
		e.Path = path
		return tools.Offer{}, 0, e
	}
	about := tools.About{Title: in.Title, Description: in.Description}
	offer := tools.Offer{Server: in.Server, About: about.Sanitize(), Started: time.Now().UTC(), Tools: in.Tools}
	return offer, in.Concurrency, nil
}

// check returns the path of an invalid field, and what is wrong with it.
func (in registrationIn) check() (path string, err error) {
	if err := tools.CheckOfferedServer(in.Server); err != nil {
		return "/server", err
	}
	if len(in.Tools) == 0 {
		return "/tools", errors.New("the list has no tools")
	}
	if in.Concurrency < 0 || in.Concurrency > 256 {
		return "/concurrency", errors.New("it must be 0 to 256")
	}
	names := map[string]bool{}
	for i, t := range in.Tools {
		at := fmt.Sprintf("/tools/%d", i)
		if err := t.Check(); err != nil {
			return at, err
		}
		if names[t.Name] {
			return at, fmt.Errorf("tool %q is listed twice", t.Name)
		}
		names[t.Name] = true
	}
	return "", nil
}

// checkTaken refuses an offer whose server is a server of the fleet, or that has a tool which another process has
// registered with a different definition. Processes with equal definitions share the calls.
func (s *Server) checkTaken(r *http.Request, offer tools.Offer) error {
	if s.o.Tools == nil {
		return noTools()
	}
	listing, err := s.o.Tools.All(r.Context(), identityOf(r.Context()).tenant)
	if err != nil {
		return err
	}
	for _, t := range listing.Tools {
		if t.Server != offer.Server {
			continue
		}
		i := slices.IndexFunc(offer.Tools, func(o tools.OfferedTool) bool { return o.Name == t.Name })
		switch {
		case t.State != tools.Registered:
			e := apierror.New(errcode.ToolTaken, "the fleet has a server %s", offer.Server)
			e.Path, e.Hint = "/server", "register the tools under another server"
			return e
		case i >= 0 && t.Hash != offer.Tools[i].Hash():
			e := apierror.New(errcode.ToolTaken, "another process serves %s/%s with a different definition", t.Server,
				t.Name)
			e.Path, e.Hint = fmt.Sprintf("/tools/%d", i), "use another name, or stop the other process"
			return e
		}
	}
	return nil
}

// registration holds the calls that wait for an answer.
type registration struct {
	id    string
	calls chan toolCall // to the stream

	mu      sync.Mutex
	waiting map[string]chan toolAnswer // by the call's id; each has room for one answer
}

// service returns the service that passes calls of the offered tools to the client until ctx ends.
func (g *registration) service(
	ctx context.Context, tenant string, offer tools.Offer, concurrency int,
) jobs.ToolService {
	names := make([]jobs.ToolName, len(offer.Tools))
	for i, t := range offer.Tools {
		names[i] = jobs.ToolName{Server: offer.Server, Tool: t.Name}
	}
	offered, err := json.Marshal(offer)
	if err != nil {
		panic("ingest: encode offer: " + err.Error()) // cannot happen: it was decoded from JSON
	}
	return jobs.ToolService{
		Tenant: tenant, Instance: g.id, Tools: names, Offer: offered, Concurrency: concurrency,
		Handle: func(call context.Context, name jobs.ToolName, data []byte) []byte {
			call, cancel := context.WithCancel(call)
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			return g.call(call, offer, name, data)
		},
	}
}

// call sends a call to the client and waits for its answer.
func (g *registration) call(ctx context.Context, offer tools.Offer, name jobs.ToolName, data []byte) []byte {
	i := slices.IndexFunc(offer.Tools, func(t tools.OfferedTool) bool { return t.Name == name.Tool })
	var q tools.OfferedCall
	if err := json.Unmarshal(data, &q); err != nil {
		return encodeResponse(tools.OfferedResponse{Code: tools.OfferFailed, Error: "decode call: " + err.Error()})
	}
	if q.Hash != "" && q.Hash != offer.Tools[i].Hash() {
		return encodeResponse(tools.OfferedResponse{
			Code: tools.OfferChanged, Error: "this process has a different definition of the tool",
		})
	}
	c := toolCall{ID: strings.ToLower(rand.Text()), Tool: name.Tool, Args: q.Args}
	answer := make(chan toolAnswer, 1)
	g.mu.Lock()
	g.waiting[c.ID] = answer
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		delete(g.waiting, c.ID)
		g.mu.Unlock()
	}()
	select {
	case g.calls <- c:
	case <-ctx.Done():
		return encodeResponse(tools.OfferedResponse{
			Code: tools.OfferFailed, Error: "the tool's process has disconnected",
		})
	}
	select {
	case a := <-answer:
		return encodeResponse(a.response())
	case <-ctx.Done():
		return encodeResponse(tools.OfferedResponse{
			Code: tools.OfferFailed, Error: "the tool's process did not answer",
		})
	}
}

func (a toolAnswer) response() tools.OfferedResponse {
	switch {
	case a.Error != nil && (*a.Error != "" || len(a.Value) == 0):
		return tools.OfferedResponse{Code: tools.OfferFailed, Error: *a.Error}
	case len(a.Value) == 0:
		return tools.OfferedResponse{Value: json.RawMessage("null")}
	}
	return tools.OfferedResponse{Value: a.Value}
}

// encodeBounded encodes v on one line. If v is larger than a tool's response may be, it encodes tooLarge instead.
func encodeBounded(v, tooLarge any) ([]byte, error) {
	data, err := tools.EncodeJSON(v)
	if err == nil && len(data) > jobs.MaxToolResponse {
		data, err = tools.EncodeJSON(tooLarge)
	}
	return bytes.TrimSuffix(data, []byte("\n")), err
}

var tooLargeText = fmt.Sprintf("the response is larger than %d bytes", jobs.MaxToolResponse)

// encodeResponse encodes a response, or an error if it is too large.
func encodeResponse(resp tools.OfferedResponse) []byte {
	out, err := encodeBounded(resp, tools.OfferedResponse{Code: tools.OfferLarge, Error: tooLargeText})
	if err != nil {
		panic("ingest: encode response: " + err.Error()) // cannot happen: the value is valid JSON
	}
	return out
}

// stream sends calls until ctx ends or the client disconnects.
func (g *registration) stream(ctx context.Context, cancel func(), out *stream, heartbeat time.Duration) {
	defer clock.Repeat(ctx, heartbeat, func() {
		if out.write(": alive\n\n") != nil {
			cancel() // the client has disconnected
		}
	})()
	err := out.send(g.id, "registered", registered{g.id})
	for err == nil {
		select {
		case c := <-g.calls:
			err = out.send(c.ID, "call", c)
		case <-ctx.Done():
			return
		}
	}
	cancel()
}

const maxCallID = 100 // bytes

// delivered and unknownCall are the responses of a registration's mailbox.
const (
	delivered   = "delivered"
	unknownCall = "unknown"
)

// deliver hands an answer to the call that waits for it.
func (g *registration) deliver(data []byte) []byte {
	var a toolAnswer
	if json.Unmarshal(data, &a) != nil {
		return []byte(unknownCall)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	answer, ok := g.waiting[a.Call]
	if !ok {
		return []byte(unknownCall)
	}
	delete(g.waiting, a.Call) // the first answer counts
	answer <- a
	return []byte(delivered)
}

// postToolAnswer answers a call of a registered tool.
func (s *Server) postToolAnswer(w http.ResponseWriter, r *http.Request) error {
	if ct := r.Header.Get("Content-Type"); !isJSON(ct) {
		return badMediaType(ct, "an answer is JSON")
	}
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	var a toolAnswer
	if err := strictjson.DecodeOpen(body, &a); err != nil {
		return badJSON(body, err)
	}
	unknown := apierror.New(errcode.UnknownCall, "no such call waits for an answer")
	if len(a.Call) > maxCallID {
		return unknown
	}
	data, err := encodeBounded(a, toolAnswer{Call: a.Call, Error: new(tooLargeText)}) // the call waits for either
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Limits.QueueTime)
	defer cancel()
	status, err := s.queue.Deliver(ctx, identityOf(ctx).tenant, r.PathValue("id"), data)
	if errors.Is(err, jobs.ErrNoMailbox) {
		return apierror.New(errcode.UnknownRegistration, "the registration has ended, or does not exist")
	}
	if err != nil {
		return err
	}
	if string(status) != delivered {
		return unknown
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
