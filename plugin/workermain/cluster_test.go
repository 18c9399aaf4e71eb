package workermain_test

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/schemas"
)

// startServers starts n servers of a NATS cluster, from the index first on. It returns the URL of the last one. The
// cluster has a server for each of routes, which are their addresses among each other.
func startServers(t *testing.T, routes []*url.URL, first, n int) (clientURL string) {
	t.Helper()
	for i := first; i < first+n; i++ {
		port, err := strconv.Atoi(routes[i].Port())
		if err != nil {
			t.Fatal(err)
		}
		s, err := server.NewServer(&server.Options{
			ServerName: "n" + strconv.Itoa(i), Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
			JetStream: true, StoreDir: t.TempDir(), Routes: routes,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		if !s.ReadyForConnections(30 * time.Second) {
			t.Fatal("the server is not ready after 30s, want it ready")
		}
		clientURL = s.ClientURL()
	}
	return clientURL
}

// TestClusterWithoutLeader checks that a worker waits for a leader, and that its /healthz says so, if only one of the
// three servers of a NATS cluster runs when the worker starts.
func TestClusterWithoutLeader(t *testing.T) {
	f := startFleet(t) // for its object store
	routes := make([]*url.URL, 3)
	for i := range routes {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		routes[i] = &url.URL{Scheme: "nats", Host: l.Addr().String()}
		l.Close()
	}
	file, err := config.ReadFleetFile(f.file)
	if err != nil {
		t.Fatal(err)
	}
	file.NATS = config.FleetNATS{URL: startServers(t, routes, 0, 1)}
	f.file = filepath.Join(t.TempDir(), "fleet.json")
	if err := file.Write(f.file); err != nil {
		t.Fatal(err)
	}
	addr := freeAddr(t)
	w := f.startWorker(t, "CODEFLEET_TELEMETRY_ADDR="+addr, "CODEFLEET_WORKER_DRAIN=1s")
	w.await(t, "waiting for a part of the fleet")
	awaitHealth(t, addr, "503 queue: ")
	startServers(t, routes, 1, 2)
	w.await(t, "worker ready")
	awaitHealth(t, addr, "200 ok")
	c, err := client.New(t.Context(), client.Options{URL: file.NATS.URL, NATSFleet: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if r := run(t, c, client.Task{Code: "6*7"}); r.Status != schemas.Succeeded {
		t.Errorf("task = %s, %v, want %s", r.Status, r.Error, schemas.Succeeded)
	}
	w.stop()
	if err := <-w.ended; err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
}

// TestSandboxHealth checks that /healthz of a worker says when its sandbox engine fails, and when it works again. The
// worker has used up its last box.
func TestSandboxHealth(t *testing.T) {
	f := startFleet(t)
	const variable = "CODEFLEET_EXECUTION_RUNSC="
	broken, wrapper := filepath.Join(f.data, "broken"), filepath.Join(f.data, "wrapper")
	for i, v := range f.env {
		if runsc, ok := strings.CutPrefix(v, variable); ok {
			script := "#!/bin/sh\nif [ -e " + broken + " ]; then echo out of order >&2; exit 1; fi\nexec " + runsc + ` "$@"`
			if err := os.WriteFile(wrapper, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			f.env[i] = variable + wrapper
		}
	}
	addr := freeAddr(t)
	w := f.startWorker(t, "CODEFLEET_TELEMETRY_ADDR="+addr, "CODEFLEET_WORKER_DRAIN=1s", "CODEFLEET_WORKER_SLOTS=1",
		"CODEFLEET_EXECUTION_REUSE=never", "CODEFLEET_OPTIMIZATIONS_SANDBOX_POOL_SIZE=1")
	w.await(t, "worker ready")
	awaitHealth(t, addr, "200 ok")
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	rec, err := f.client.Submit(t.Context(), client.Submission{Task: client.Task{Code: "6*7"}}) // uses a box up
	if err != nil {
		t.Fatal(err)
	}
	awaitHealth(t, addr, "503 sandbox: ", "out of order")
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	awaitHealth(t, addr, "200 ok")
	if rec, err := f.client.Wait(t.Context(), rec.TaskID); err != nil || rec.Status != schemas.Succeeded {
		t.Errorf("task = %s, %v, want %s", rec.Status, err, schemas.Succeeded)
	}
	w.stop()
	if err := <-w.ended; err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
}
