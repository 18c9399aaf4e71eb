package executor_test

import (
	"testing"

	"github.com/codefleet/codefleet/internal/executor"
	"github.com/codefleet/codefleet/internal/executor/executortest"
)

func TestQuick(t *testing.T) {
	s, err := executor.NewSingle(t.Context(), executortest.Host{}, executor.Spec{Workspace: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		v, err := s.Run(t.Context(), executor.Program{TaskID: "x", Code: "print('hi')\nimport os\nos.getuid()"}, executor.Hooks{})
		t.Logf("%+v %v %v", v, v.Error, err)
		t.Logf("%s", v.Result)
	}
	t.Log(s.Close(t.Context()))
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
			b.Fatal(v, err)
		}
	}
}
