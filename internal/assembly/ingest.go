package assembly

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/codefleet/codefleet/client"
	"github.com/codefleet/codefleet/internal/assembly/storage"
	"github.com/codefleet/codefleet/internal/clock"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/httpserve"
	"github.com/codefleet/codefleet/internal/ingest"
	"github.com/codefleet/codefleet/internal/page"
	"github.com/codefleet/codefleet/internal/telemetry"
)

// Ingest returns the options of the HTTP interface without Tools, Skills and MCP. The interface also accepts the
// token of the fleet file, if there is one.
func Ingest(c *config.Config, t *telemetry.Telemetry, fleet config.FleetFile) (ingest.Options, error) {
	tokens, err := Tokens(c, fleetTokens(fleet)...)
	if err != nil {
		return ingest.Options{}, err
	}
	conf, err := ServerTLS(c)
	if err != nil {
		return ingest.Options{}, err
	}
	access := ingest.Access{
		Tokens: tokens, Tenants: slices.Sorted(maps.Keys(c.Tenants)), Hosts: c.HTTP.AllowedHosts,
		Origins: c.HTTP.AllowedOrigins, TLS: conf, Privacy: c.PrivacyMode,
	}
	o := ingest.Options{
		State:  ingest.StateDocuments{Disabled: !c.Execution.State.Enabled, File: c.DefaultState()},
		Access: access, WebhookNetworks: c.Webhooks.Networks(), SessionText: sessionText(c),
		Telemetry: ingest.Telemetry{
			Log: t.Logger, Tracer: t.TracerProvider.Tracer("codefleet/ingest"), Metrics: t.MetricsHandler,
		},
	}
	if c.S3.Endpoint == "" {
		return o, nil
	}
	if o.Workspaces, err = storage.Open(c, "", t.Logger, nil); err != nil {
		return ingest.Options{}, err
	}
	if o.Mirror, err = storage.Mirror(c, o.Workspaces); err != nil {
		return ingest.Options{}, err
	}
	o.Artifacts = storage.Artifacts(o.Workspaces)
	return o, nil
}

// Server returns the HTTP interface. The web page that it serves sends its requests to the same interface, in the
// process.
func Server(c *config.Config, t *telemetry.Telemetry, o ingest.Options) *ingest.Server {
	if !c.Page.Enabled {
		return ingest.New(o)
	}
	transport := &httpserve.InProcess{Caller: "page"}
	o.Mounted.Page = page.New(page.Options{
		Fleet:    client.Options{URL: "http://localhost", HTTPClient: &http.Client{Transport: transport}},
		ReadOnly: c.Page.ReadOnly, Prefix: c.Page.Prefix, Log: t.Logger,
	})
	server := ingest.New(o)
	transport.Handler = server.Handler()
	return server
}

// fleetTokens returns the token of a fleet file, if there is one.
func fleetTokens(f config.FleetFile) []ingest.Token {
	if f.Token == "" {
		return nil
	}
	return []ingest.Token{{
		Name: "up", SHA256: sha256.Sum256([]byte(f.Token)), Tenant: f.Tenant,
		Scopes: []string{
			ingest.ScopeSubmit, ingest.ScopeRead, ingest.ScopeApprove, ingest.ScopeTools, ingest.ScopeOperator,
		},
	}}
}

// FollowTokens calls set with the accepted tokens whenever the token in the fleet file of c has changed. fleet is the
// content of the file so far. FollowTokens reads the file until stop is called or ctx ends.
func FollowTokens(
	ctx context.Context, c *config.Config, fleet config.FleetFile, set func([]ingest.Token),
) (stop func()) {
	return clock.Repeat(ctx, followEvery, func() {
		now, ok := c.FleetFile()
		if !ok || now.Token == "" || now.Token == fleet.Token && now.Tenant == fleet.Tenant {
			return
		}
		if tokens, err := Tokens(c, fleetTokens(now)...); err == nil {
			set(tokens)
			fleet = now
		}
	})
}

// followEvery is the interval at which FollowTokens reads the file.
const followEvery = time.Second

// Tokens returns the bearer tokens of tenants and operators, and the extra ones. It returns none if
// authentication is off, and an error if authentication is on without any token, because every request would be
// refused.
func Tokens(c *config.Config, extra ...ingest.Token) ([]ingest.Token, error) {
	if !c.Auth.Enabled {
		return nil, nil
	}
	tokens := slices.Clone(extra)
	add := func(tenant string, list []config.Token, scopes ...string) error {
		for _, t := range list {
			out := ingest.Token{Name: t.Name, Tenant: tenant, Scopes: t.Scopes}
			if len(out.Scopes) == 0 {
				out.Scopes = scopes
			}
			if _, err := hex.Decode(out.SHA256[:], []byte(t.SHA256)); err != nil {
				return fmt.Errorf("token %q of %s: %w", t.Name, cmp.Or(tenant, "the operators"), err)
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
		err = errors.New("authentication is on but no token is set: " +
			"set tenants.NAME.tokens, or set auth.enabled: false on a loopback address")
	}
	return tokens, err
}

// ServerTLS returns the TLS configuration of the HTTP interface, or nil if no certificate is set.
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
