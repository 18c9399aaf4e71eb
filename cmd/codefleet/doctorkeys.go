package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/codefleet/codefleet/internal/config"
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
