package gvisor_test

import (
	"testing"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/executortest"
)

func TestContract(t *testing.T) {
	engine(t)
	executortest.TestDriver(t, func(t *testing.T) executor.Driver { t.Helper(); return newDriver(t) })
}

func TestRestored(t *testing.T) {
	engine(t)
	needsRoot(t)
	executortest.TestRestored(t, func(t *testing.T) executor.Driver { t.Helper(); return newDriver(t) })
}
