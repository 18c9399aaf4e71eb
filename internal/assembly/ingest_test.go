package assembly_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codefleet/codefleet/internal/assembly"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/ingest"
)

func settings(tenants map[string]config.Tenant) *config.Config {
	c := config.Default()
	c.Tenants = tenants
	c.Worker.Slots = 4
	return c
}

func TestTokens(t *testing.T) {
	sum := sha256.Sum256([]byte("secret"))
	hash := config.Secret(hex.EncodeToString(sum[:]))
	c := settings(map[string]config.Tenant{"acme": {Tokens: []config.Token{
		{Name: "ci", SHA256: hash}, {Name: "ro", SHA256: hash, Scopes: []string{"read"}},
	}}})
	c.Auth.Operators = []config.Token{{Name: "ops", SHA256: hash}}
	got, err := assembly.Tokens(c)
	want := []ingest.Token{
		{Name: "ops", SHA256: sum, Scopes: []string{"operator"}},
		{Name: "ci", SHA256: sum, Tenant: "acme", Scopes: []string{"submit", "read"}},
		{Name: "ro", SHA256: sum, Tenant: "acme", Scopes: []string{"read"}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Tokens: %v (-want +got):\n%s", err, diff)
	}

	c = settings(map[string]config.Tenant{"default": {}})
	if _, err := assembly.Tokens(c); err == nil {
		t.Error("Tokens with authentication but without tokens = nil, want an error")
	}
	c.Auth.Enabled = false
	if got, err := assembly.Tokens(c); got != nil || err != nil {
		t.Errorf("Tokens without authentication = %v, %v, want none", got, err)
	}
}
