package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/assembly/storage"
	"github.com/codefleet/codefleet/internal/config"
	"github.com/codefleet/codefleet/internal/state"
	"github.com/codefleet/codefleet/internal/state/format"
	"github.com/codefleet/codefleet/internal/state/maintenance"
)

// encryption says whose workspaces are encrypted, and which secrets others on this host can read.
func (p *patient) encryption(context.Context) finding {
	const name = "encryption"
	files := keyFiles(p.Workspaces.Encryption)
	var own []string
	for _, tenant := range slices.Sorted(maps.Keys(p.Tenants)) {
		e := p.Tenants[tenant].Encryption
		if files = append(files, keyFiles(e)...); e.KeyFile != "" {
			own = append(own, tenant)
		}
	}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o077 != 0 {
			return finding{name, warning, fmt.Sprintf("others on this host may read %s (mode %#o)", file, info.Mode().Perm()), "chmod 600 " + file}
		}
	}
	switch {
	case p.Workspaces.Encryption.KeyFile != "":
		return finding{name, good, "workspaces of all tenants are encrypted in the object store", ""}
	case len(own) > 0:
		return finding{name, good, "workspaces of " + strings.Join(own, ", ") + " are encrypted in the object store, others are in the clear", ""}
	}
	return finding{name, good, "off; workspaces are in the clear in the object store", ""}
}

func keyFiles(e config.Encryption) []string {
	if e.KeyFile == "" {
		return slices.Clone(e.OldKeyFiles)
	}
	return append([]string{e.KeyFile}, e.OldKeyFiles...)
}

// oldSecret is one of old_key_files, and whose workspaces it may be needed for.
type oldSecret struct {
	file    string
	secret  config.Secret
	tenants []string
}

func (p *patient) oldSecrets() []oldSecret {
	var list []oldSecret
	add := func(e config.Encryption, tenants ...string) {
		for i, file := range e.OldKeyFiles {
			list = append(list, oldSecret{file, e.OldKeys[i], tenants})
		}
	}
	all := slices.Sorted(maps.Keys(p.Tenants))
	add(p.Workspaces.Encryption, all...)
	for _, tenant := range all {
		add(p.Tenants[tenant].Encryption, tenant)
	}
	return list
}

// secretsInUse says of each old secret what in the object store still needs it.
func (p *patient) secretsInUse(ctx context.Context) []finding {
	const name, unknown = "old secret", "whether it is still needed is not known: "
	old := p.oldSecrets()
	if len(old) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	store, err := p.workspaces()
	if err != nil {
		return []finding{{name, warning, unknown + err.Error(), ""}}
	}
	look := storage.CollectOptions(p.Config)
	look.DryRun = true
	found := map[string]maintenance.GCResult{} // by tenant
	var out []finding
	for _, s := range old {
		var needs []string
		for _, tenant := range s.tenants {
			if _, ok := found[tenant]; !ok {
				if found[tenant], err = maintenance.CollectGarbage(ctx, store.Repo(), tenant, look); err != nil {
					return []finding{{name, warning, unknown + err.Error(), ""}}
				}
			}
			if n := found[tenant].OtherKeys[format.KeyID(tenant, []byte(s.secret))]; n > 0 {
				needs = append(needs, fmt.Sprintf("%s (%d objects)", tenant, n))
			}
		}
		f := finding{name, good, s.file + " is needed by " + strings.Join(needs, ", "), ""}
		if len(needs) == 0 {
			f.Detail, f.Fix = s.file+" is needed by nothing", "unless a process writes with it, or is to, take it out of old_key_files"
		}
		out = append(out, f)
	}
	return out
}

// workspaces opens the store of the settings; where they name none, that of the fleet that runs with them.
func (p *patient) workspaces() (*state.Store, error) {
	c := p.Config
	if c.S3.Endpoint == "" {
		path := cmp.Or(p.app.fleet, filepath.Join(c.Data, config.FleetFileName))
		f, err := config.ReadFleetFile(path)
		if errors.Is(err, os.ErrNotExist) {
			err = errors.New("the object store is embedded, and the fleet does not run")
		}
		if err != nil {
			return nil, err
		}
		if c, err = config.Load(config.Source{File: p.app.config, Env: p.app.env, Flags: f.Settings(path)}); err != nil {
			return nil, err
		}
	}
	return storage.Open(c, "", slog.New(slog.DiscardHandler))
}
