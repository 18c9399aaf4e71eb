package text

import (
	"net/url"
	"strings"
)

// HideCredentials returns the address of a server without its password, or without the user's name if there is no
// password, because that may be a token. Of an address that is not a URL it hides all before the last "@".
func HideCredentials(address string) string {
	at := strings.LastIndex(address, "@")
	if at < 0 {
		return address
	}
	u, err := url.Parse(address)
	if err == nil && u.User != nil && strings.Count(address, "@") == 1 {
		if _, hasPassword := u.User.Password(); !hasPassword {
			u.User = url.User("xxxxx")
		}
		return u.Redacted()
	}
	scheme, _, ok := strings.Cut(address[:at], "://")
	if !ok || strings.ContainsAny(scheme, ":/?#@") { // the part before "://" may belong to the password
		return ellipsis + address[at:]
	}
	return scheme + "://" + ellipsis + address[at:]
}
