package up_test

import (
	"testing"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/executor/executortest"
	"github.com/codefleet/codefleet/internal/process"
	"github.com/codefleet/codefleet/internal/up"
	"github.com/codefleet/codefleet/internal/up/uptest"
)

// TestWithoutPooling checks that a fleet without boxes in advance becomes ready and runs a task, with each setting that
// disables pooling.
func TestWithoutPooling(t *testing.T) {
	for name, off := range map[string]func(*config.Optimizations){
		"sandbox_pooling":   func(o *config.Optimizations) { o.SandboxPooling = false },
		"sandbox_pool_size": func(o *config.Optimizations) { o.SandboxPoolSize = 0 },
		"enabled":           func(o *config.Optimizations) { o.Enabled = false },
	} {
		t.Run(name, func(t *testing.T) {
			conf := uptest.Config(t)
			conf.Execution.Runsc = executortest.Runsc(t)
			off(&conf.Optimizations)
			_, c := uptest.Start(t, up.Options{Config: conf, Telemetry: uptest.Telemetry(), Worker: process.RunWorker})
			r, err := c.Run(t.Context(), client.Submission{Task: client.Task{Code: "print(6 * 7)"}})
			if err != nil || r.Status != client.Succeeded || r.Result.Output != "42\n" {
				t.Errorf("Run = %+v, %v, want output 42", r, err)
			}
		})
	}
}
