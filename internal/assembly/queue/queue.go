// Package queue constructs the options of the queue's client from settings.
package queue

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/jobs"
	"github.com/codefleet/codefleet/internal/limited"
	"github.com/codefleet/codefleet/internal/telemetry"
	"github.com/codefleet/codefleet/schemas"
)

// Options returns the options of a client. name identifies the connection in the server's logs.
func Options(c *config.Config, t *telemetry.Telemetry, name string) (jobs.Options, error) {
	conf, err := clientTLS(c.NATS.TLSCA, c.NATS.TLSCert, c.NATS.TLSKey)
	if err != nil {
		return jobs.Options{}, fmt.Errorf("nats: %w", err)
	}
	return jobs.Options{
		Server: jobs.Server{URL: c.NATS.URL, TLS: conf, AnyVersion: c.NATS.AllowOldServer},
		Credentials: jobs.Credentials{
			User: c.NATS.User, Password: string(c.NATS.Password), Token: string(c.NATS.Token), CredsFile: c.NATS.Creds,
		},
		Relocate: func() (jobs.Location, bool) {
			now, ok := c.Rejoin()
			if !ok {
				return jobs.Location{}, false
			}
			return jobs.Location{URL: now.NATS.URL, User: now.NATS.User, Password: string(now.NATS.Password)}, true
		},
		Name: name, AckWait: c.Queue.AckWait, AnyInbox: !c.Auth.Enabled, Policy: Policy(c),
		Storage: jobs.Storage{
			MaxBacklog:   int64(c.Queue.Backlog),
			PayloadBytes: int64(c.Queue.PayloadMB) << 20, DeadLetters: int64(c.Queue.DeadLetters),
			Replicas: c.NATS.Replicas,
		},
		Log: t.Logger, Tracer: t.TracerProvider.Tracer("codefleet/jobs"),
		Meter: t.MeterProvider.Meter("codefleet/jobs"),
	}, nil
}

// maxCertificates is the size limit of a file of certificates in bytes.
const maxCertificates = 16 << 20

// clientTLS returns nil if nothing is configured. Then the scheme of the address decides whether to use TLS.
func clientTLS(ca, cert, key string) (*tls.Config, error) {
	if ca == "" && cert == "" {
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := limited.ReadFile(ca, maxCertificates)
		if err != nil {
			return nil, fmt.Errorf("certificate authorities: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("certificate authorities: %s contains no certificate", ca)
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

// Policy returns what each tenant may do. If the settings name no tenant, the default tenant may do everything. Tenants
// that are created at run time may do what a tenant with empty settings may do.
func Policy(c *config.Config) jobs.Policy {
	created := policyOf(c, config.Tenant{})
	if c.SingleTenant() {
		return func(tenant string) (jobs.TenantPolicy, bool) {
			if tenant != config.DefaultTenant {
				return created, false
			}
			return jobs.TenantPolicy{AnyHost: true}, true
		}
	}
	policies := make(map[string]jobs.TenantPolicy, len(c.Tenants))
	for name, t := range c.Tenants {
		policies[name] = policyOf(c, t)
	}
	return func(tenant string) (jobs.TenantPolicy, bool) {
		if p, ok := policies[tenant]; ok {
			return p, true
		}
		return created, false
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
		MaxOutput:  cmp.Or(t.Limits.OutputBytes, c.Limits.OutputBytes),
	}
	p.Limits = schemas.TenantLimits{
		Weight: limitOf(t.Weight), Backlog: limitOf(t.Backlog),
		TaskRate: schemas.Rate(t.TaskRate), TokenRate: schemas.Rate(t.TokenRate),
	}
	for tool, rate := range t.ToolRates {
		if p.Limits.ToolRates == nil {
			p.Limits.ToolRates = map[string]schemas.Rate{}
		}
		p.Limits.ToolRates[tool] = schemas.Rate(rate)
	}
	p.Network, _, _ = allowlist.ParseAll(t.Network) // config.Load has validated it
	if len(p.Pools) == 0 {
		p.Pools = []string{"default"}
	}
	if len(p.Priorities) == 0 {
		p.Priorities = []string{"normal", "low"}
	}
	return p
}

// limitOf returns a limit, or nil if the setting is 0, which selects the default.
func limitOf(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}
