package workermain_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/faulttest"
	"github.com/codefleet/codefleet/plugin/workermain"
	"github.com/codefleet/codefleet/schemas"
)

// TestHealth checks that a worker waits for the queue and the object store when it starts, and that /healthz names each
// part that does not respond, then and later.
func TestHealth(t *testing.T) {
	f := startRelayed(t)
	f.s3.Set(faulttest.Refuse)
	f.nats.Set(faulttest.Refuse)
	addr := freeAddr(t)
	w := f.startWorker(t, "CODEFLEET_TELEMETRY_ADDR="+addr, "CODEFLEET_WORKER_DRAIN=1s")
	w.await(t, "waiting for a part of the fleet")
	awaitHealth(t, addr, "503 object store: ", "queue: not reached yet")
	f.s3.Set(faulttest.Forward)
	w.await(t, "waiting for NATS")
	awaitHealth(t, addr, "503 queue: not reached yet")
	f.nats.Set(faulttest.Forward)
	w.await(t, "worker ready")
	awaitHealth(t, addr, "200 ok")
	for _, c := range []struct {
		name  string
		relay *faulttest.Relay
	}{{"queue", f.nats}, {"object store", f.s3}} {
		for _, mode := range []faulttest.Mode{faulttest.Hang, faulttest.Refuse} {
			c.relay.Set(mode)
			awaitHealth(t, addr, "503 "+c.name+": ")
			c.relay.Set(faulttest.Forward)
			awaitHealth(t, addr, "200 ok")
		}
	}
	for text, want := range map[string]int{"waiting for a part of the fleet": 1, `"msg":"waiting for NATS"`: 1} {
		if n := strings.Count(w.log.String(), text); n != want {
			t.Errorf("%q is logged %d times, want %d\n%s", text, n, want, w.log.String())
		}
	}
	r := run(t, f.client, client.Task{Code: "6*7"})
	if r.Status != schemas.Succeeded {
		t.Errorf("task after all faults: %s, %v, want %s", r.Status, r.Error, schemas.Succeeded)
	}
	w.stop()
	if err := <-w.ended; err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
}

// TestRejoins checks that a worker reads fleet.json again, and continues, when the queue and the object store move to
// other addresses.
func TestRejoins(t *testing.T) {
	f := startRelayed(t)
	addr := freeAddr(t)
	w := f.startWorker(t, "CODEFLEET_TELEMETRY_ADDR="+addr, "CODEFLEET_WORKER_DRAIN=1s")
	w.await(t, "worker ready")
	f.nats.Set(faulttest.Refuse)
	f.s3.Set(faulttest.Refuse)
	awaitHealth(t, addr, "503 ")
	file, err := config.ReadFleetFile(f.file)
	if err != nil {
		t.Fatal(err)
	}
	file.NATS.URL = relayTo(t, "nats://"+f.nats.Target()).Through("nats://" + f.nats.Target())
	file.S3.Endpoint = relayTo(t, "http://"+f.s3.Target()).Through("http://" + f.s3.Target())
	if err := file.Write(f.file); err != nil {
		t.Fatal(err)
	}
	awaitHealth(t, addr, "200 ok")
	r := run(t, f.client, client.Task{Code: "open('a.txt', 'w').write('a')"})
	if r.Status != schemas.Succeeded {
		t.Errorf("task after the move: %s, %v, want %s", r.Status, r.Error, schemas.Succeeded)
	}
	w.stop()
	if err := <-w.ended; err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
}

// TestStartFails checks that a worker exits for an error that waiting does not solve.
func TestStartFails(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*config.FleetFile)
		want   string
		code   int
	}{
		"password of the queue":        {func(f *config.FleetFile) { f.NATS.Password = "wrong" }, "Authorization", 1},
		"bucket of the object store":   {func(f *config.FleetFile) { f.S3.Bucket = "wrong" }, "has no bucket wrong", 2},
		"password of the object store": {func(f *config.FleetFile) { f.S3.SecretKey = "wrong" }, "refuses access", 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFleet(t)
			file, err := config.ReadFleetFile(f.file)
			if err != nil {
				t.Fatal(err)
			}
			c.change(&file)
			if err := file.Write(f.file); err != nil {
				t.Fatal(err)
			}
			w := f.startWorker(t)
			select {
			case err := <-w.ended:
				code := workermain.Exit(t.Context(), err, io.Discard)
				if err == nil || !strings.Contains(err.Error(), c.want) || code != c.code {
					t.Errorf("Run() = %v, exit code %d, want %q, %d", err, code, c.want, c.code)
				}
			case <-time.After(30 * time.Second):
				t.Errorf("the worker waits, want an error\n%s", w.log.String())
			}
		})
	}
}

// awaitHealth waits until the status and body of /healthz contain all texts.
func awaitHealth(t *testing.T, addr string, texts ...string) {
	t.Helper()
	await(t, fmt.Sprintf("/healthz with %q", texts), func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		start, endLag := time.Now(), faulttest.MeasureLag()
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			endLag()
			return false
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		took, lag := time.Since(start), endLag()
		if err != nil || took-lag > 5*time.Second {
			t.Errorf("GET /healthz took %v, %v of it without a processor: %v, want at most 5s", took, lag, err)
		}
		got := fmt.Sprint(resp.StatusCode, " ", string(body))
		for _, text := range texts {
			if !strings.Contains(got, text) {
				return false
			}
		}
		return true
	})
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
