package executor_test

import (
	"os"
	"testing"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/executortest"
)

func TestHost(t *testing.T) {
	python := os.Getenv("CODEFLEET_TEST_PYTHON") // an interpreter to use instead of the system's
	executortest.TestDriver(t, func(*testing.T) executor.Driver { return executortest.Host{Python: python} })
}

func BenchmarkWarm(b *testing.B) {
	s, err := executor.NewSingle(b.Context(), executortest.Host{}, executor.Spec{Workspace: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(b.Context())
	for b.Loop() {
		v, err := s.Run(b.Context(), executor.Program{TaskID: "x", Code: "print(6*7)"}, executor.Hooks{})
		if err != nil || v.Output != "42\n" {
			b.Fatalf("Run() = %+v, %v, want the output 42", v, err)
		}
	}
}
