package bridge

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/errcode"
)

// This file is about a fleet that does not respond: it has not started yet, is starting again, or is out of reach. The
// bridge waits for it. Meanwhile, calls fail within attemptTime, so that the agent can tell its user, or do something
// else.

// Locate finds the fleet to serve, like client.Locate. The bridge may start before its fleet, so a fleet.json that does
// not exist yet is not an error.
func Locate(path string) (client.Options, error) {
	o, err := client.Locate(path)
	if o.Located.Path != "" && (errors.Is(err, client.ErrNoFleet) || errors.Is(err, fs.ErrNotExist)) {
		return o, nil
	}
	return o, err
}

const (
	awayDelay   = time.Second     // between two attempts to reach the fleet
	attemptTime = 2 * time.Second // time limit of one attempt
)

// temporary reports whether an error of the fleet may go away by itself. A refused token does not become valid.
func (b *Bridge) temporary(err error) bool {
	e, ok := errors.AsType[*client.APIError](err)
	switch {
	case !ok:
		return true
	case e.Code == errcode.UnexpectedResponse: // another program has the address, and fleet.json may name a new one
		return b.o.Fleet.Located.Path != ""
	}
	return e.Status == http.StatusTooManyRequests || e.Status >= http.StatusInternalServerError
}

// identifyOnce is like identify, but makes only one attempt, within attemptTime, and records whether the fleet
// responded.
func (p *principal) identifyOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	p.asked.Store(time.Now().UnixNano())
	id, err := p.noRetry.WhoAmI(ctx)
	p.away.Store(err != nil && p.b.temporary(err))
	if err != nil {
		return err
	}
	// A principal keeps the first scopes that the fleet reports: its MCP servers were made with the tools that those
	// permit.
	if p.identity.Swap(&id) == nil {
		p.scopes.Store(&id.Scopes)
	}
	return nil
}

// awaitFleet waits until the fleet responds or ctx ends. It returns an error that will not go away by itself, such as
// the refusal of the token.
func (p *principal) awaitFleet(ctx context.Context) error {
	for clock.Sleep(ctx, awayDelay) == nil {
		err := p.identifyOnce(ctx)
		if err == nil {
			p.b.o.Log.InfoContext(ctx, "the fleet responds")
			return nil
		}
		if !p.b.temporary(err) {
			return err
		}
	}
	return nil
}

// reach returns an error if the fleet did not respond to the last call and still does not respond.
func (p *principal) reach(ctx context.Context) error {
	if !p.away.Load() {
		return nil
	}
	if err := p.identifyOnce(ctx); err != nil && p.b.temporary(err) {
		return err
	}
	return nil // after another error, the call itself shows what is wrong
}

// noteAway records that the fleet is away if err, the error of a call, is temporary.
func (p *principal) noteAway(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil && p.b.temporary(err) {
		p.away.Store(true)
	}
}
