package gvisor_test

import (
	"testing"

	"github.com/codefleet/codefleet/internal/executor"
)

func TestPoolRunsPrograms(t *testing.T) {
	p := startPool(t, newDriver(t), executor.PoolOptions{MinReady: 2, Max: 3, DiskMB: 64})
	l := lease(t, p, "a", executor.Limits{})
	if got := run(t, l, "print(6*7)"); got.Output != "42\n" || got.Status != executor.Succeeded {
		t.Errorf("run = %+v, want 42", got)
	}
	l.Release()
}
