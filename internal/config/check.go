package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codefleet/codefleet/internal/allowlist"
	"github.com/codefleet/codefleet/internal/executor/drivers"
	"github.com/codefleet/codefleet/internal/names"
	"github.com/codefleet/codefleet/internal/statedoc"
	"github.com/codefleet/codefleet/internal/text"
)

var hashRule = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

const nameText = "%q: a name is " + names.SlugRule

// checker collects problems, each with the origin of its value.
type checker struct {
	c        *Config
	problems []Problem
}

func (k *checker) bad(key, format string, args ...any) {
	k.problems = append(k.problems, Problem{k.c.Origin(key).Where, key, fmt.Sprintf(format, args...)})
}

func (c *Config) check() []Problem {
	k := &checker{c: c}
	k.listeners()
	k.stores()
	k.workspaces()
	k.workers()
	k.execution()
	k.limits()
	k.privacy()
	k.llm()
	k.tools()
	k.servers()
	k.tokens("auth.operators", c.Auth.Operators)
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		k.tenant(name, c.Tenants[name])
	}
	k.mcp()
	k.page()
	k.telemetry()
	k.homes()
	return k.problems
}

// homes refuses ~ at the start of a path, which only shells expand: the fleet would make a directory with this name. It
// does not look at patterns, and at the arguments of commands, which may expand it.
func (k *checker) homes() {
	for _, v := range k.c.Values() {
		if (v.Value == "~" || strings.HasPrefix(v.Value, "~/")) && !strings.HasPrefix(v.Key, "guardrails.") &&
			!strings.Contains(v.Key, ".guardrails.") && !argsKey.MatchString(v.Key) {
			k.bad(v.Key, "%s: ~ is not expanded: write the path in full, such as /home/ada/x", v.Value)
		}
	}
}

func (k *checker) listeners() {
	c := k.c
	k.addr("http.addr", c.HTTP.Addr)
	k.addr("nats.addr", c.NATS.Addr)
	k.addr("s3.addr", c.S3.Addr)
	if c.Telemetry.Addr != "" {
		k.addr("telemetry.addr", c.Telemetry.Addr)
	}
	if !c.Auth.Enabled && !Loopback(c.HTTP.Addr) {
		k.bad("auth.enabled",
			"authentication can be disabled on a loopback address only, but http.addr is %s", c.HTTP.Addr)
	}
	for _, text := range c.Webhooks.PrivateNetworks {
		if _, err := netip.ParsePrefix(text); err != nil {
			k.bad("webhooks.private_networks", "%q is not a network, such as 10.1.0.0/16", text)
		}
	}
	k.pair("http.tls_cert", c.HTTP.TLSCert, "http.tls_key", c.HTTP.TLSKey)
	k.pair("nats.tls_cert", c.NATS.TLSCert, "nats.tls_key", c.NATS.TLSKey)
}

// Loopback reports whether only this host can reach a listening address.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func (k *checker) addr(key, addr string) {
	_, port, err := net.SplitHostPort(addr)
	if n, perr := strconv.Atoi(port); err != nil || perr != nil || n < 0 || n > 65535 {
		k.bad(key, "%q is not host:port, such as 127.0.0.1:8787; port 0 selects a free port",
			text.HideCredentials(addr))
	}
}

func (k *checker) pair(key1, v1, key2, v2 string) {
	if (v1 == "") != (v2 == "") {
		k.bad(key1, "set both %s and %s, or neither", key1, key2)
	}
}

func (k *checker) url(key, text string, schemes ...string) {
	if text == "" {
		return
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || !slices.Contains(schemes, u.Scheme) {
		k.bad(key, "want a URL of the form %s://host", strings.Join(schemes, "://host or "))
	}
}

func (k *checker) stores() {
	n, s := k.c.NATS, k.c.S3
	for u := range strings.SplitSeq(n.URL, ",") {
		k.url("nats.url", strings.TrimSpace(u), "nats", "tls", "ws", "wss")
	}
	if !slices.Contains([]int{0, 1, 3, 5}, n.Replicas) {
		k.bad("nats.replicas", "want 1, 3 or 5")
	}
	if n.Password != "" && n.User == "" {
		k.bad("nats.user", "nats.password requires nats.user")
	}
	k.url("s3.endpoint", s.Endpoint, "https", "http")
	if s.Endpoint != "" {
		k.pair("s3.access_key", s.AccessKey, "s3.secret_key", string(s.SecretKey))
	}
	k.oneOf("s3.heads", s.Heads, HeadsCAS, HeadsCreate, HeadsNATS, HeadsSingleWriter)
	if s.Bucket == "" {
		k.bad("s3.bucket", "must not be empty")
	}
}

// minGrace is twice the time within which a commit may refer to content of its base version.
const minGrace = 24 * time.Hour

func (k *checker) workspaces() {
	w := k.c.Workspaces
	k.mirror()
	k.atLeast("workspaces.keep_newest", w.KeepNewest, 1)
	k.atLeast("workspaces.keep_days", w.KeepDays, 0)
	for _, d := range []struct {
		key   string
		value time.Duration
		min   time.Duration
	}{
		{"workspaces.keep_all", w.KeepAll, 0},
		{"workspaces.inactive", w.Inactive, 0},
		{"workspaces.keep_deleted", w.KeepDeleted, minGrace},
		{"workspaces.clean_every", w.CleanEvery, 0},
	} {
		if d.value < d.min {
			k.bad(d.key, "%s is less than %s", d.value, d.min)
		}
	}
	if least := max(minGrace, 2*k.c.maxTimeout()); w.Grace < least {
		k.bad("workspaces.grace", "%s is less than %s: want at least %s, and twice guardrails.max_execution_time and "+
			"each tenant's limits.timeout", w.Grace, least, minGrace)
	}
	if w.Inactive > 0 && w.Inactive < w.Grace {
		k.bad("workspaces.inactive", "%s is less than workspaces.grace, %s", w.Inactive, w.Grace)
	}
}

func (k *checker) workers() {
	c := k.c
	if c.Queue.AckWait < time.Second {
		k.bad("queue.ack_wait", "%s is less than 1s", c.Queue.AckWait)
	}
	if n := c.Queue.Attempts; n < 1 || n > maxAttempts {
		k.bad("queue.attempts", "%d is not between 1 and %d", n, maxAttempts)
	}
	k.atLeast("queue.backlog", c.Queue.Backlog, 1)
	k.atLeast("queue.payload_mb", c.Queue.PayloadMB, 1)
	k.atLeast("queue.dead_letters", c.Queue.DeadLetters, 1)
	k.atLeast("worker.slots", c.Worker.Slots, 0)
	if c.Worker.Drain < 0 {
		k.bad("worker.drain", "%s is negative", c.Worker.Drain)
	}
	k.slugs("worker.pools", c.Worker.Pools)
	for _, name := range slices.Sorted(maps.Keys(c.Pools)) {
		k.pool("pools."+name, name, c.Pools[name])
	}
}

func (k *checker) pool(key, name string, p Pool) {
	if !names.IsSlug(name) {
		k.bad(key, nameText, name)
	}
	k.requirements(key+".requirements", p.Requirements, cmp.Or(p.Image, k.c.Execution.SandboxImage))
	if p.Ready != nil {
		k.atLeast(key+".ready", *p.Ready, 0)
	}
}

// requirements refuses requirements that gVisor would install for the Python of an image, or else of execution.rootfs,
// which only gVisor uses.
func (k *checker) requirements(key, requirements, image string) {
	e := k.c.Execution
	if requirements == "" || e.SandboxType == drivers.Microsandbox || image == "" && e.Rootfs == "" ||
		image != "" && e.SandboxType != drivers.GVisor {
		return
	}
	root := "the image"
	if image == "" {
		root = "execution.rootfs"
	}
	k.bad(key, "with gVisor, packages are part of %[1]s: install them there, or remove %[1]s", root)
}

func (k *checker) positive(key string, d time.Duration) {
	if d <= 0 {
		k.bad(key, "%s is not positive", d)
	}
}

// maxAttempts is also the highest number that a task may ask for, see schemas/task.v1.json.
const maxAttempts = 100

func (k *checker) atLeast(key string, n, lowest int) {
	if n < lowest {
		k.bad(key, "%d is less than %d", n, lowest)
	}
}

func (k *checker) oneOf(key, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		k.bad(key, "%q is not one of %s%s", value, strings.Join(allowed, ", "), didYouMean(value, allowed))
	}
}

func (k *checker) slugs(key string, list []string) {
	for i, n := range list {
		if !names.IsSlug(n) {
			k.bad(key, nameText, n)
		} else if slices.Contains(list[:i], n) {
			k.bad(key, "%s is listed twice", n)
		}
	}
}

func (k *checker) execution() {
	e := k.c.Execution
	k.oneOf("execution.sandbox_type", e.SandboxType, append([]string{"auto"}, drivers.Tiers()...)...)
	k.oneOf("execution.reuse", e.Reuse, "tenant", "never")
	if e.SandboxImage != "" && e.Rootfs != "" {
		k.bad("execution.rootfs", "the root file system is that of execution.sandbox_image: remove one of the two")
	}
	k.requirements("execution.requirements", e.Requirements, e.SandboxImage)
	k.atLeast("execution.max_boxes", e.MaxBoxes, 0)
	k.atLeast("execution.max_image_mb", int(e.MaxImageMB), 1)
	k.atLeast("execution.memory_mb_total", e.MemoryMBTotal, 0)
	k.atLeast("execution.idle_memory_mb", e.IdleMemoryMB, 0)
	k.atLeast("optimizations.sandbox_pool_size", k.c.Optimizations.SandboxPoolSize, 0)
	if e.MaxBoxes > 0 && e.MaxBoxes < k.c.Optimizations.ReadyBoxes() {
		k.bad("execution.max_boxes", "%d is less than the %d boxes that optimizations.sandbox_pool_size keeps ready",
			e.MaxBoxes, k.c.Optimizations.ReadyBoxes())
	}
	k.state()
}

func (k *checker) state() {
	const fileKey, formatKey = "execution.state.state_file", "execution.state.state_format"
	file, format := k.c.DefaultState(), strings.ToLower(k.c.Execution.State.StateFormat)
	switch err := statedoc.CheckName(file); {
	case format == "pickle":
		k.bad(formatKey, statedoc.NoPickle)
	case format != "" && format != "json" && format != "yaml":
		k.bad(formatKey, "%q is not one of json, yaml", format)
	case err != nil:
		k.bad(fileKey, "%s", err)
	case format != "" && statedoc.IsYAML(file) != (format == "yaml"):
		k.bad(formatKey, "%s does not fit the name %s of %s: change one of them", format, file, fileKey)
	}
}

// minCPUs is the smallest limit of processors that the kernel can enforce: a millisecond of each tenth of a second.
const minCPUs = 0.01

func (k *checker) limits() {
	l, g := k.c.Limits, k.c.Guardrails
	if g.MaxExecutionTime < 100*time.Millisecond || g.MaxExecutionTime > 24*time.Hour {
		k.bad("guardrails.max_execution_time", "%s is not between 100ms and 24h", g.MaxExecutionTime)
	}
	k.atLeast("guardrails.max_memory_mb", g.MaxMemoryMB, 16)
	k.guardrails("guardrails", g.Level, g.Options())
	if !(l.CPUs >= minCPUs && l.CPUs <= 1024) {
		k.bad("limits.cpus", "%v: want a number from %v to 1024", l.CPUs, minCPUs)
	}
	k.atLeast("limits.output_bytes", int(l.OutputBytes), 1024)
	k.atLeast("limits.workspace_mb", int(l.WorkspaceMB), 1)
	k.atLeast("limits.processes", l.Processes, 1)
	k.atLeast("limits.open_files", l.OpenFiles, 16)
	k.atLeast("limits.network_mb", int(l.NetworkMB), 1)
}

func (k *checker) llm() {
	l := k.c.LLM
	k.oneOf("llm.provider", l.Provider, "openai", "azure_openai")
	if !(l.Temperature >= 0 && l.Temperature <= 2) {
		k.bad("llm.temperature", "%v is not between 0 and 2", l.Temperature)
	}
	k.atLeast("llm.max_tokens", l.MaxTokens, 1)
	k.url("llm.azure_endpoint", l.AzureEndpoint, "https", "http")
	k.url("llm.base_url", l.BaseURL, "https", "http")
	k.atLeast("llm.repair_attempts", l.RepairAttempts, 0)
	k.atLeast("llm.task_tokens", l.TaskTokens, 0)
	k.atLeast("llm.daily_tokens", l.DailyTokens, 0)
	k.positive("llm.timeout", l.Timeout)
	for _, name := range slices.Sorted(maps.Keys(l.Profiles)) {
		k.profile("llm.profiles."+name, name, l.Profiles[name])
	}
	e := k.c.Embeddings
	k.url("embeddings.base_url", e.BaseURL, "https", "http")
	k.atLeast("embeddings.dimensions", e.Dimensions, 0)
	k.positive("embeddings.deadline", e.Deadline)
}

// toolDecisions are the values of a tool policy, as in internal/tools/broker.
var toolDecisions = []string{"allow", "deny", "approve"}

func (k *checker) tools() {
	t := k.c.Tools
	k.oneOf("tools.destructive", t.Destructive, toolDecisions...)
	k.oneOf("weather.provider", k.c.Weather.Provider, WeatherSample, WeatherOpenMeteo)
	for _, id := range slices.Sorted(maps.Keys(t.Policy)) {
		k.toolPattern("tools.policy", id)
		k.oneOf("tools.policy."+id, t.Policy[id], toolDecisions...)
	}
	k.atLeast("tools.max_calls", t.MaxCalls, 1)
	k.atLeast("tools.max_mb", t.MaxMB, 1)
	k.atLeast("tools.max_concurrent", t.MaxConcurrent, 1)
	if t.ApprovalTimeout < 0 || t.ApprovalTimeout > 24*time.Hour {
		k.bad("tools.approval_timeout", "%s is not between 0 and 24h", t.ApprovalTimeout)
	}
	if t.CallTimeout <= 0 || t.TotalTime <= 0 {
		k.bad("tools.call_timeout", "call_timeout and total_time must be positive")
	}
}

func (k *checker) toolPattern(key, pattern string) {
	if !names.IsToolPattern(pattern) {
		k.bad(key, "%q: want server/tool or server/*", pattern)
	}
}

func (k *checker) toolFilters(key string, filters []string) {
	for _, f := range filters {
		if !names.IsToolFilter(f) {
			k.bad(key, "%q: want server/tool, server/* or *", f)
		}
	}
}

func (k *checker) profile(key, name string, p LLMProfile) {
	if !names.IsSlug(name) {
		k.bad(key, nameText, name)
	}
	if p.Provider != "" {
		k.oneOf(key+".provider", p.Provider, "openai", "azure_openai")
	}
	if t := p.Temperature; t != nil && !(*t >= 0 && *t <= 2) {
		k.bad(key+".temperature", "%v is not between 0 and 2", *t)
	}
	k.atLeast(key+".max_tokens", p.MaxTokens, 0)
	k.url(key+".base_url", p.BaseURL, "https", "http")
}

func (k *checker) servers() {
	defined := map[string]bool{}
	for i, s := range k.c.MCPServers {
		key := fmt.Sprintf("mcp_servers[%d]", i)
		switch {
		case !names.IsSlug(s.Name):
			k.bad(key+".name", nameText, s.Name)
		case defined[s.Name]:
			k.bad(key+".name", "%q is listed twice", s.Name)
		case (s.Command == "") == (s.URL == ""):
			k.bad(key+".name", "%q needs either command or url", s.Name)
		}
		defined[s.Name] = true
		k.url(key+".url", s.URL, "https", "http")
		k.server(key, s)
		k.oneOf(key+".scope", cmp.Or(s.Scope, "tenant"), "tenant", "session", "shared")
	}
}

func (k *checker) server(key string, s MCPServer) {
	for _, of := range []struct {
		setting, of string
		set, needed bool
	}{
		{"user", "command", s.User != "", s.Command != ""},
		{"cwd", "command", s.Cwd != "", s.Command != ""},
		{"args", "command", len(s.Args) > 0, s.Command != ""},
		{"env", "command", len(s.Env) > 0, s.Command != ""},
		{"headers", "url", len(s.Headers) > 0, s.URL != ""},
	} {
		if of.set && !of.needed {
			k.bad(key+"."+of.setting, "%q has no %s, so %s would have no effect", s.Name, of.of, of.setting)
		}
	}
	switch {
	case s.ConnectionType == "":
	case s.Command != "":
		k.oneOf(key+".connection_type", s.ConnectionType, "stdio")
	default:
		k.oneOf(key+".connection_type", s.ConnectionType, "http", "sse")
	}
	if s.StartTimeout < 0 {
		k.bad(key+".start_timeout", "%s is negative", s.StartTimeout)
	}
	if s.Timeout < 0 {
		k.bad(key+".timeout", "%s is negative", s.Timeout)
	}
	k.atLeast(key+".concurrency", s.Concurrency, 0)
}

func (k *checker) tenant(name string, t Tenant) {
	key := "tenants." + name
	if !names.IsName(name) {
		k.bad(key, "%q: a name has 1 to 63 letters (a-z, A-Z), digits, _ and -, and starts with a letter or digit",
			name)
	}
	for other := range k.c.Tenants {
		if other < name && strings.EqualFold(other, name) {
			k.bad(key, "it differs from tenant %s by case only, and not every file system can hold both", other)
		}
	}
	k.slugs(key+".pools", t.Pools)
	for _, p := range t.Priorities {
		k.oneOf(key+".priorities", p, "high", "normal", "low")
	}
	k.atLeast(key+".max_running", t.MaxRunning, 0)
	k.rates(key, t)
	if _, _, err := allowlist.ParseAll(t.Network); err != nil {
		k.bad(key+".network", "%s", err)
	}
	k.toolFilters(key+".tools", t.Tools)
	if t.MinTier != "" {
		k.oneOf(key+".min_tier", t.MinTier, drivers.Tiers()...)
	}
	k.guardrails(key+".guardrails", t.Guardrails.Level, t.Guardrails.Options())
	k.privacySettings(key+".privacy", t.Privacy.Mode, t.Privacy.Types, t.Privacy.Restore)
	l := t.Limits
	if l.Timeout < 0 || l.MemoryMB < 0 || !(l.CPUs >= 0) || l.OutputBytes < 0 || l.WorkspaceMB < 0 {
		k.bad(key+".limits", "limits must not be negative")
	}
	if l.CPUs > 0 && l.CPUs < minCPUs {
		k.bad(key+".limits.cpus", "%v: want a number from %v, or 0 for limits.cpus", l.CPUs, minCPUs)
	}
	k.tokens(key+".tokens", t.Tokens)
}

// rates checks a tenant's share of the fleet and its rates.
func (k *checker) rates(key string, t Tenant) {
	if t.Weight < 0 || t.Weight > maxWeight {
		k.bad(key+".weight", "%d: want a number from 1 to %d, or 0 for the default", t.Weight, maxWeight)
	}
	k.atLeast(key+".backlog", t.Backlog, 0)
	rates := map[string]string{".task_rate": t.TaskRate, ".token_rate": t.TokenRate}
	for tool, rate := range t.ToolRates {
		if !names.IsToolPattern(tool) || rate == "" {
			k.bad(key+".tool_rates", "%q: %q: want server/tool or server/*, and a rate", tool, rate)
		}
		rates[".tool_rates."+tool] = rate
	}
	for _, name := range slices.Sorted(maps.Keys(rates)) {
		if rate := rates[name]; rate != "" && !rateRule.MatchString(rate) {
			k.bad(key+name, "%q: want a number and a unit, such as 10/s, 600/m or 1000/h", rate)
		}
	}
}

const maxWeight = 1000 // of a tenant

var rateRule = regexp.MustCompile(`^[1-9][0-9]{0,8}/[smh]$`)

// knownTokens maps hashes to the tokens that were in samples or that are easily guessed.
var knownTokens = hashesOf("", "test", "token", "TOKEN", "secret", "password", "admin", "changeme", "codefleet")

func hashesOf(words ...string) map[string]string {
	hashes := make(map[string]string, len(words))
	for _, word := range words {
		sum := sha256.Sum256([]byte(word))
		hashes[hex.EncodeToString(sum[:])] = word
	}
	return hashes
}

func (k *checker) tokens(key string, tokens []Token) {
	for i, t := range tokens {
		at := fmt.Sprintf("%s[%d]", key, i)
		if t.SHA256 == "" && t.File == "" {
			k.bad(at, "sha256 or file is missing")
		}
		if t.SHA256 != "" && !hashRule.MatchString(string(t.SHA256)) {
			k.bad(at+".sha256", "want 64 hexadecimal digits; compute them with: printf %%s \"$TOKEN\" | sha256sum")
		}
		if word, known := knownTokens[strings.ToLower(string(t.SHA256))]; known {
			k.bad(at+".sha256", "the hash of %q, which is easy to guess: generate one with openssl rand -hex 24", word)
		}
		for _, s := range t.Scopes {
			k.oneOf(at+".scopes", s, "read", "submit", "approve", "tools", "operator")
		}
	}
}

func (k *checker) telemetry() {
	k.oneOf("logging.level", strings.ToUpper(k.c.Logging.Level), "DEBUG", "INFO", "WARNING", "WARN", "ERROR")
	k.oneOf("logging.format", k.c.Logging.Format, "auto", "text", "json")
	k.url("telemetry.endpoint", k.c.Telemetry.Endpoint, "http", "https")
	if s := k.c.Telemetry.Sample; !(s >= 0 && s <= 1) {
		k.bad("telemetry.sample", "%v is not between 0 and 1", s)
	}
}
