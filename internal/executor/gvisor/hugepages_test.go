package gvisor

import "testing"

func TestChosen(t *testing.T) {
	for words, want := range map[string]string{
		"always inherit within_size advise [never]\n": "never",
		"always inherit [within_size] advise never\n": "within_size",
		"[always] inherit within_size advise never\n": "always",
		"":      "",
		"never": "",
		"[":     "",
	} {
		if got := chosen([]byte(words)); got != want {
			t.Errorf("chosen(%q) = %q, want %q", words, got, want)
		}
	}
}
