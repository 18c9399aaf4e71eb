package config

import (
	"slices"
	"time"

	"github.com/codefleet/codefleet/internal/guardrails/privacy"
)

// Modes of privacy, from the weakest.
const (
	PrivacyOff    = "off"
	PrivacyEgress = "egress"
	PrivacyBroker = "broker"
)

var privacyModes = map[string]privacy.Mode{
	"": privacy.Off, PrivacyOff: privacy.Off, PrivacyEgress: privacy.Egress, PrivacyBroker: privacy.Broker,
}

// maxTokenTTL is how long the queue keeps the records of tool calls, which contain the tokens.
const maxTokenTTL = 7 * 24 * time.Hour

// Privacy configures which personal data and secrets are replaced with tokens, and where.
type Privacy struct {
	// off (nothing is replaced), egress (what models, MCP clients, logs and approvals get) or broker (also
	// what programs get from tools).
	Mode string `yaml:"mode"`
	// What is replaced: email, phone, ssn, card, iban, ip, secret; with a recognizer also person and place. By
	// default, all of them.
	Types []string `yaml:"types"`
	// With the mode broker: tools whose arguments get the values in place of tokens, as server/tool,
	// server/* or *. By default, none.
	Restore []string `yaml:"restore"`
	// File with a secret of at least 32 random characters, from which tokens are computed. All hosts of a
	// fleet need the same secret. By default, each host creates one in its data directory.
	KeyFile string `yaml:"key_file"`
	// How long tokens can be replaced with their values, at most 7 days.
	TTL time.Duration `yaml:"ttl"`
	// A service that finds names of persons and places. By default, there is none.
	Recognizer Recognizer `yaml:"recognizer"`

	// Key is the content of KeyFile.
	Key Secret `yaml:"-"`
}

// Recognizer configures a service with the interface of Presidio's analyzer.
type Recognizer struct {
	// URL of the service, such as http://127.0.0.1:5002/analyze.
	URL string `yaml:"url"`
	// Language of the texts.
	Language string `yaml:"language"`
	// Time limit of the requests about one value. If it is exceeded, or the service fails, the whole text is
	// replaced with a token.
	Timeout time.Duration `yaml:"timeout"`
	// Names with a lower score are ignored, 0 to 1.
	MinScore float64 `yaml:"min_score"`
}

// TenantPrivacy tightens the fleet's privacy for a tenant.
type TenantPrivacy struct {
	// off, egress or broker. The fleet's mode applies if it replaces more.
	Mode string `yaml:"mode" sample:"broker"`
	// What is replaced, in addition to the fleet's types.
	Types []string `yaml:"types"`
	// Tools whose arguments get values, if the fleet's list contains them too. By default, the fleet's
	// list.
	Restore []string `yaml:"restore"`
}

// PrivacyEnabled reports whether the mode of the fleet or of a tenant is not off.
func (c *Config) PrivacyEnabled() bool {
	enabled := privacyModes[c.Privacy.Mode] != privacy.Off
	for _, t := range c.Tenants {
		enabled = enabled || privacyModes[t.Privacy.Mode] != privacy.Off
	}
	return enabled
}

// PrivacyMode returns the mode of a tenant, or "" if it is off.
func (c *Config) PrivacyMode(tenant string) string {
	switch max(privacyModes[c.Privacy.Mode], privacyModes[c.Tenants[tenant].Privacy.Mode]) {
	case privacy.Broker:
		return PrivacyBroker
	case privacy.Egress:
		return PrivacyEgress
	case privacy.Off:
	}
	return ""
}

// PrivacyOptions returns the options of the privacy filter, without a key unless a file contains it.
func (c *Config) PrivacyOptions() privacy.Options {
	p := c.Privacy
	o := privacy.Options{
		Key: []byte(p.Key), TTL: p.TTL, Tenants: map[string]privacy.Settings{},
		Fleet: privacy.Settings{Mode: privacyModes[p.Mode], Types: typesOf(p.Types), Restore: p.Restore},
	}
	all := len(p.Types) == 0
	if all {
		o.Fleet.Types = privacy.Types()
	}
	if r := p.Recognizer; r.URL != "" {
		o.Recognizer = &privacy.Recognizer{URL: r.URL, Language: r.Language, Timeout: r.Timeout, MinScore: r.MinScore}
		if all {
			o.Fleet.Types = append(o.Fleet.Types, privacy.Person, privacy.Place)
		}
	}
	for name, t := range c.Tenants {
		o.Tenants[name] = privacy.Settings{
			Mode: privacyModes[t.Privacy.Mode], Types: typesOf(t.Privacy.Types), Restore: t.Privacy.Restore,
		}
	}
	return o
}

func typesOf(names []string) []privacy.Type {
	var types []privacy.Type
	for _, n := range names {
		types = append(types, privacy.Type(n))
	}
	return types
}

func (k *checker) privacy() {
	p := k.c.Privacy
	k.privacySettings("privacy", p.Mode, p.Types, p.Restore)
	if p.TTL < time.Minute || p.TTL > maxTokenTTL {
		k.bad("privacy.ttl", "%s is not between 1m and %s", p.TTL, maxTokenTTL)
	}
	k.url("privacy.recognizer.url", p.Recognizer.URL, "https", "http")
	k.positive("privacy.recognizer.timeout", p.Recognizer.Timeout)
	if !(p.Recognizer.MinScore >= 0 && p.Recognizer.MinScore <= 1) {
		k.bad("privacy.recognizer.min_score", "%v is not between 0 and 1", p.Recognizer.MinScore)
	}
}

// privacySettings checks the settings of the fleet or of a tenant.
func (k *checker) privacySettings(key, mode string, types, restore []string) {
	if mode != "" {
		k.oneOf(key+".mode", mode, PrivacyOff, PrivacyEgress, PrivacyBroker)
	}
	var known []string
	for _, t := range append(privacy.Types(), privacy.Person, privacy.Place) {
		known = append(known, string(t))
	}
	for _, t := range types {
		k.oneOf(key+".types", t, known...)
		if k.c.Privacy.Recognizer.URL == "" && slices.Contains(known[len(known)-2:], t) {
			k.bad(key+".types", "%s needs privacy.recognizer.url", t)
		}
	}
	k.toolFilters(key+".restore", restore)
}
