package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codefleet/codefleet/schemas"
)

// TestCarryingFollowsPresences checks that HEADs may carry commits only while all live workers are known to read them.
func TestCarryingFollowsPresences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type response struct {
			workers []schemas.Worker
			err     error
		}
		var now atomic.Pointer[response]
		now.Store(&response{})
		var c Carrying
		stop := c.follow(t.Context(), func(context.Context) ([]schemas.Worker, error) {
			a := now.Load()
			return a.workers, a.err
		})
		defer stop()
		reads, old := schemas.Worker{Name: "new", ReadsCarried: true}, schemas.Worker{Name: "old"}
		for _, step := range []struct {
			name string
			response
			want bool
		}{
			{"no presence is known", response{}, false},
			{"one worker that reads them", response{workers: []schemas.Worker{reads}}, true},
			{"another one that does not", response{workers: []schemas.Worker{reads, old}}, false},
			{"two that do", response{workers: []schemas.Worker{reads, reads}}, true},
			{"the queue does not respond", response{err: errors.New("no response")}, false},
		} {
			now.Store(&step.response)
			<-time.After(carryingEvery)
			synctest.Wait()
			if got := c.Allowed(); got != step.want {
				t.Errorf("%s: Allowed() = %v, want %v", step.name, got, step.want)
			}
		}
	})
	var none *Carrying
	if none.Allowed() {
		t.Error("Allowed() without a Carrying = true, want false")
	}
}
