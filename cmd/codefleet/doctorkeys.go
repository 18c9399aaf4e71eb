package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"al.essio.dev/pkg/shellescape"

	"github.com/codefleet/codefleet/internal/assembly/storage"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/objects"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/maintenance"
	"github.com/codefleet/codefleet/internal/text"
	"github.com/codefleet/codefleet/schemas"
)

// encryption reports whose workspaces are encrypted, and warns of secrets that other users of this host can read.
func (p *hostCheck) encryption(context.Context) checkResult {
	const name = "encryption"
	files := keyFiles(p.Workspaces.Encryption)
	var encrypted []string // tenants with their own secret
	for _, tenant := range slices.Sorted(maps.Keys(p.Tenants)) {
		e := p.Tenants[tenant].Encryption
		if files = append(files, keyFiles(e)...); e.KeyFile != "" {
			encrypted = append(encrypted, tenant)
		}
	}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o077 != 0 {
			return checkResult{
				name, warning, fmt.Sprintf("other users of this host can read %s (mode %#o)", file, info.Mode().Perm()),
				"chmod 600 " + shellescape.Quote(file),
			}
		}
	}
	switch {
	case p.Workspaces.Encryption.KeyFile != "":
		return passed(name, "workspaces of all tenants are encrypted in the object store")
	case len(encrypted) > 0:
		return passed(name, "workspaces of %s are encrypted in the object store, others are not",
			strings.Join(encrypted, ", "))
	}
	return passed(name, "off; workspaces are unencrypted in the object store")
}

// keyFiles returns the files of the secrets. The first name is empty if there is no current secret.
func keyFiles(e config.Encryption) []string { return append([]string{e.KeyFile}, e.OldKeyFiles...) }

// oldSecret is a secret from old_key_files, with the tenants whose workspaces it may decrypt.
type oldSecret struct {
	file    string
	secret  config.Secret
	tenants []string
}

// oldSecrets returns the old secrets. found are the tenants in the object store: a tenant without settings, or one that
// was removed, may still have workspaces.
func (p *hostCheck) oldSecrets(found []string) []oldSecret {
	var list []oldSecret
	add := func(e config.Encryption, tenants ...string) {
		for i, file := range e.OldKeyFiles {
			list = append(list, oldSecret{file, e.OldKeys[i], tenants})
		}
	}
	all := slices.AppendSeq(slices.Clone(found), maps.Keys(p.Tenants))
	slices.Sort(all)
	all = slices.Compact(all)
	add(p.Workspaces.Encryption, all...)
	for _, tenant := range all {
		add(p.Tenants[tenant].Encryption, tenant)
	}
	return list
}

// secretsInUse reports for each old secret whether objects in the store are encrypted with it.
func (p *hostCheck) secretsInUse(ctx context.Context) []checkResult {
	const name, unknown = "old secret", "cannot tell whether it is still needed: "
	if len(p.oldSecrets(nil)) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	store, err := p.openStore()
	if err != nil {
		return []checkResult{{name, warning, unknown + err.Error(), ""}}
	}
	tenants, err := storedTenants(ctx, store.Repo().Bucket)
	if err != nil {
		return []checkResult{{name, warning, unknown + err.Error(), ""}}
	}
	options := storage.CollectOptions(p.Config)
	options.DryRun = true
	found := map[string]maintenance.GCResult{} // by tenant
	var out []checkResult
	for _, s := range p.oldSecrets(tenants) {
		var needs []string
		for _, tenant := range s.tenants {
			if _, ok := found[tenant]; !ok {
				if found[tenant], err = maintenance.CollectGarbage(ctx, store.Repo(), tenant, options); err != nil {
					return []checkResult{{name, warning, unknown + err.Error(), ""}}
				}
			}
			if n := found[tenant].OtherKeys[format.KeyID(tenant, []byte(s.secret))]; n > 0 {
				needs = append(needs, fmt.Sprintf("%s (%s)", tenant, text.Count(n, "object")))
			}
		}
		r := passed(name, "%s is needed by %s", s.file, strings.Join(needs, ", "))
		if len(needs) == 0 {
			r.Detail, r.Fix = s.file+" is no longer needed",
				"remove it from old_key_files, unless a process still writes with it"
		}
		out = append(out, r)
	}
	return out
}

// storedTenants returns the tenants that have objects in a store: the first elements of the keys.
func storedTenants(ctx context.Context, bucket objects.Objects) ([]string, error) {
	var found []string
	for after := ""; ; {
		tenant := ""
		for o, err := range bucket.List(ctx, "", after) {
			if err != nil {
				return nil, err
			}
			tenant, _, _ = strings.Cut(o.Key, "/")
			break
		}
		if tenant == "" {
			return found, nil
		}
		if schemas.CheckName("tenant", tenant) == nil { // the tool catalogue is in the store, too
			found = append(found, tenant)
		}
		after = tenant + "0" // the next character after the slash, so it follows all keys of the tenant
	}
}

// openStore opens the object store of the fleet that --fleet or the environment names, or else that of the settings, or
// else that of the fleet that runs on this host.
func (p *hostCheck) openStore() (*state.Store, error) {
	c, err := p.app.loadFleet()
	if err != nil {
		return nil, err
	}
	if c.S3.Endpoint == "" {
		return nil, errors.New("the object store is embedded, and no fleet is running")
	}
	return storage.Open(c, "", slog.New(slog.DiscardHandler), nil)
}
