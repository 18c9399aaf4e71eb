package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"strings"

	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/telemetry"
	"github.com/codefleet/codefleet/internal/wire"
)

// builtFrom is the version of module that the program at path was built from, or "".
func builtFrom(path, module string) string {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return ""
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module && strings.HasPrefix(m.Version, "v") {
			return m.Version
		}
	}
	return ""
}

// probeQueue connects to the queue that the settings name.
func (a *app) probeQueue(ctx context.Context, c *config.Config) finding {
	const name = "queue"
	t, err := telemetry.Setup(ctx, telemetry.Options{})
	if err != nil {
		return finding{name, problem, err.Error(), ""}
	}
	o, err := wire.Jobs(c, t, "codefleet doctor")
	if err != nil {
		return finding{name, problem, err.Error(), ""}
	}
	q, err := jobs.Connect(ctx, o)
	switch {
	case errors.Is(err, jobs.ErrServerOld):
		return finding{name, problem, err.Error(), "upgrade it to " + jobs.MinServer + " or newer"}
	case err != nil:
		return finding{name, problem, fmt.Sprintf("nats.url does not answer: %v", err), "is the address right (codefleet config show), and the server running?"}
	}
	q.Close()
	return finding{name, warning, "answers; whether it writes to disk at once cannot be seen from here", "set sync_interval: always in the server's jetstream section"}
}

// probeStore looks at the object store that the settings name.
func (a *app) probeStore(context.Context, *config.Config) finding {
	return finding{"object store", warning, "named, and looked at when a worker starts", ""}
}
