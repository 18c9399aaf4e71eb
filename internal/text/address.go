package text

import (
	"net/url"
	"strings"
)

// HideCredentials returns the addresses of servers, which commas separate, without their passwords. It hides the user's
// name, too, if there is no password, because that may be a token. If it cannot tell where a password begins, it hides
// all before the last "@".
func HideCredentials(addresses string) string {
	if shown, ok := withoutPassword(addresses); ok {
		return shown
	}
	list := strings.Split(addresses, ",")
	for i, address := range list {
		shown, ok := withoutPassword(address)
		mayBePassword := shown == address && strings.Contains(strings.Join(list[i:], ","), "@") // it may have commas
		if !ok || mayBePassword {
			return withoutUser(addresses)
		}
		list[i] = shown
	}
	return strings.Join(list, ",")
}

// withoutPassword returns an address without its password. It returns false if the address has an "@" that may stand
// elsewhere than between a user and a host.
func withoutPassword(address string) (shown string, ok bool) {
	if !strings.Contains(address, "@") {
		return address, true
	}
	u, err := url.Parse(address)
	if err != nil || u.User == nil || strings.Count(address, "@") != 1 {
		return "", false
	}
	if password, _ := u.User.Password(); password == "" {
		u.User = url.User("xxxxx")
	}
	return u.Redacted(), true
}

// withoutUser hides all between the scheme and the last "@" of an address.
func withoutUser(address string) string {
	at := strings.LastIndex(address, "@")
	scheme, _, ok := strings.Cut(address[:at], "://")
	if !ok || strings.ContainsAny(scheme, ":/?#@") { // the part before "://" may belong to the password
		return ellipsis + address[at:]
	}
	return scheme + "://" + ellipsis + address[at:]
}
