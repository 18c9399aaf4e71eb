package config

import (
	"path"
	"strings"
)

// Page configures the web page, which is at /ui/ of the HTTP interface.
type Page struct {
	// Serve the page.
	Enabled bool `yaml:"enabled"`
	// The page shows everything and changes nothing.
	ReadOnly bool `yaml:"read_only"`
	// Path under which a proxy serves the fleet, such as /codefleet. The proxy removes it from requests.
	Prefix string `yaml:"prefix"`
}

func (k *checker) page() {
	if p := k.c.Page.Prefix; p != "" && (p != path.Clean(p) || p == "/" || !strings.HasPrefix(p, "/") ||
		strings.Trim(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") != "") {
		k.bad("page.prefix", "%q is not a path such as /codefleet", p)
	}
}
