// Package assembly turns settings into the values that the packages of the fleet take: what a tenant
// may do, who holds which token, how to reach the queue. The programs and `codefleet up` share it.
// It starts nothing and reads no file but certificates.
package assembly

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/mirror"
	"github.com/codefleet/codefleet/internal/telemetry"
)

// Policy is what each tenant may do. A fleet whose settings name no tenant belongs to whoever runs
// it: its one tenant may do everything.
func Policy(c *config.Config) jobs.Policy {
	if c.SingleTenant() {
		return func(tenant string) (jobs.TenantPolicy, bool) {
			return jobs.TenantPolicy{AnyHost: true}, tenant == config.DefaultTenant
		}
	}
	policies := make(map[string]jobs.TenantPolicy, len(c.Tenants))
	for name, t := range c.Tenants {
		policies[name] = policyOf(c, t)
	}
	return func(tenant string) (jobs.TenantPolicy, bool) {
		p, ok := policies[tenant]
		return p, ok
	}
}

func policyOf(c *config.Config, t config.Tenant) jobs.TenantPolicy {
	p := jobs.TenantPolicy{
		Pools:      t.Pools,
		Priorities: t.Priorities,
		MaxRunning: cmp.Or(t.MaxRunning, max(c.Slots()-1, 1)),
		MaxTimeout: cmp.Or(t.Limits.Timeout, c.Guardrails.MaxExecutionTime),
		MaxMemory:  cmp.Or(t.Limits.MemoryMB, c.Guardrails.MaxMemoryMB),
		MaxCPUs:    cmp.Or(t.Limits.CPUs, c.Limits.CPUs),
	}
	p.Network, _, _ = allowlist.ParseAll(t.Network) // Load has refused what is no host
	if len(p.Pools) == 0 {
		p.Pools = []string{"default"}
	}
	if len(p.Priorities) == 0 {
		p.Priorities = []string{"normal", "low"}
	}
	return p
}

// Tokens are the bearer tokens of tenants and operators. The result is empty when authentication is
// off; when it is on and there is not one token, that is an error: nobody could come in.
func Tokens(c *config.Config, more ...ingest.Token) ([]ingest.Token, error) {
	if !c.Auth.Enabled {
		return nil, nil
	}
	tokens := slices.Clone(more)
	add := func(tenant string, list []config.Token, scopes ...string) error {
		for _, t := range list {
			out := ingest.Token{Name: t.Name, Tenant: tenant, Scopes: t.Scopes}
			if len(out.Scopes) == 0 {
				out.Scopes = scopes
			}
			if _, err := hex.Decode(out.SHA256[:], []byte(t.SHA256)); err != nil {
				return fmt.Errorf("token %q of %q: %w", t.Name, tenant, err)
			}
			tokens = append(tokens, out)
		}
		return nil
	}
	err := add("", c.Auth.Operators, ingest.ScopeOperator)
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		err = cmp.Or(err, add(name, c.Tenants[name].Tokens, ingest.ScopeSubmit, ingest.ScopeRead))
	}
	if err == nil && len(tokens) == 0 {
		err = errors.New("authentication is on and there is no token: give tenants.NAME.tokens, or auth.enabled: false on a loopback address")
	}
	return tokens, err
}

// Ingest says what the HTTP interface needs, but for its queue and its tools. The token of a fleet file, where there is one, opens it
// too.
func Ingest(c *config.Config, t *telemetry.Telemetry, fleet config.FleetFile) (ingest.Options, error) {
	var own []ingest.Token
	if fleet.Token != "" {
		own = append(own, ingest.Token{
			Name: "up", SHA256: sha256.Sum256([]byte(fleet.Token)), Tenant: fleet.Tenant,
			Scopes: []string{ingest.ScopeSubmit, ingest.ScopeRead, ingest.ScopeApprove, ingest.ScopeOperator},
		})
	}
	tokens, err := Tokens(c, own...)
	if err != nil {
		return ingest.Options{}, err
	}
	conf, err := ServerTLS(c)
	if err != nil {
		return ingest.Options{}, err
	}
	var files ingest.Artifacts
	var store *state.Store
	var plain *mirror.Mirror
	if c.S3.Endpoint != "" {
		if store, err = Store(c, "", t.Logger); err != nil {
			return ingest.Options{}, err
		}
		if plain, err = Mirror(c, store); err != nil {
			return ingest.Options{}, err
		}
		files = artifacts{store}
	}
	access := ingest.Access{Tokens: tokens, Hosts: c.HTTP.AllowedHosts, Origins: c.HTTP.AllowedOrigins, TLS: conf}
	return ingest.Options{
		Workspaces: store, Mirror: plain, StateFile: c.Execution.State.StateFile, Artifacts: files, Access: access,
		Metrics: t.MetricsHandler, Log: t.Logger, Tracer: t.TracerProvider.Tracer("codefleet/ingest"),
	}, nil
}

// Jobs says how to reach the queue. name is the program's, for the server's logs.
func Jobs(c *config.Config, t *telemetry.Telemetry, name string) (jobs.Options, error) {
	conf, err := clientTLS(c.NATS.TLSCA, c.NATS.TLSCert, c.NATS.TLSKey)
	if err != nil {
		return jobs.Options{}, fmt.Errorf("nats: %w", err)
	}
	return jobs.Options{
		Server: jobs.Server{URL: c.NATS.URL, TLS: conf, AnyVersion: c.NATS.AllowOldServer},
		Credentials: jobs.Credentials{
			User: c.NATS.User, Password: string(c.NATS.Password), Token: string(c.NATS.Token), CredsFile: c.NATS.Creds,
		},
		Name: name, AckWait: c.Queue.AckWait, AnyInbox: !c.Auth.Enabled, Policy: Policy(c),
		Log: t.Logger, Tracer: t.TracerProvider.Tracer("codefleet/jobs"), Meter: t.MeterProvider.Meter("codefleet/jobs"),
	}, nil
}

// clientTLS is nil when nothing is set, so that the address decides.
func clientTLS(ca, cert, key string) (*tls.Config, error) {
	if ca == "" && cert == "" {
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("certificate authorities: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("certificate authorities: %s holds no certificate", ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}

// ServerTLS is the certificate of the HTTP interface, or nil.
func ServerTLS(c *config.Config) (*tls.Config, error) {
	if c.HTTP.TLSCert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(c.HTTP.TLSCert, c.HTTP.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("http: certificate: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}, nil
}

// Telemetry says what a program logs, traces and counts. program is its name, and version its own.
func Telemetry(c *config.Config, program, version string, stderr io.Writer) telemetry.Options {
	return telemetry.Options{
		Service: cmp.Or(c.Telemetry.ServiceName, "codefleet-"+program), Instance: c.Worker.Name, Version: version,
		Log:      telemetry.LogOptions{Level: c.Logging.Level, Format: c.Logging.Format, File: c.Logging.File, Output: stderr},
		Endpoint: c.Telemetry.Endpoint, Sample: c.Telemetry.Sample, Metrics: c.Telemetry.Metrics,
	}
}
