package gvisor

import "testing"

func TestCurrent(t *testing.T) {
	for words, want := range map[string]string{
		"always inherit within_size advise [never]\n": "never",
		"always inherit [within_size] advise never\n": "within_size",
		"[always] inherit within_size advise never\n": "always",
		"":      "",
		"never": "",
		"[":     "",
	} {
		if got := current([]byte(words)); got != want {
			t.Errorf("current(%q) = %q, want %q", words, got, want)
		}
	}
}

func TestEffective(t *testing.T) {
	const all = "always within_size advise [never] deny force\n"
	for _, c := range []struct{ size, all, want string }{
		{"always inherit [within_size] advise never\n", all, "within_size"},
		{"always [inherit] within_size advise never\n", all, "never"},
		{"always [inherit] within_size advise never\n", "[always] within_size advise never deny force\n", "always"},
		{"always inherit [within_size] advise never\n", "always within_size advise never [deny] force\n", "deny"},
		{"always [inherit] within_size advise never\n", "always within_size advise never [deny] force\n", "deny"},
		{"always inherit [within_size] advise never\n", "", "within_size"},
	} {
		if got := effective([]byte(c.size), []byte(c.all)); got != c.want {
			t.Errorf("effective(%q, %q) = %q, want %q", c.size, c.all, got, c.want)
		}
	}
}
