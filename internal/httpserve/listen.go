package httpserve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// AddressError says why a process cannot listen on an address of its settings.
type AddressError struct {
	Addr    string
	Setting string // the flag or setting that has the address
	Err     error
}

func (e *AddressError) Error() string {
	reason := "cannot be used"
	unknown, isUnknown := errors.AsType[*net.DNSError](e.Err)
	switch {
	case errors.Is(e.Err, syscall.EADDRINUSE):
		return fmt.Sprintf("%s is in use by another process: stop it, or choose another address with %s "+
			"(port 0 selects a free port)", e.Addr, e.Setting)
	case errors.Is(e.Err, syscall.EADDRNOTAVAIL):
		reason = "is not an address of this host"
	case errors.Is(e.Err, syscall.EACCES):
		reason = "may not be used by this user"
	case isUnknown && unknown.IsNotFound:
		reason = "names an unknown host, " + unknown.Name
	}
	return fmt.Sprintf("%s %s: choose another address with %s: %v", e.Addr, reason, e.Setting, e.Err)
}

func (e *AddressError) Unwrap() error { return e.Err }

// Listen listens on addr. setting names the flag or the setting that has the address, for the error. The error is an
// *AddressError unless ctx has ended.
func Listen(ctx context.Context, addr, setting string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil && ctx.Err() == nil {
		err = &AddressError{addr, setting, err}
	}
	return l, err
}

// Address returns the address of a listener. For an unspecified address it keeps the host of the setting, because the
// listener of 0.0.0.0 reports [::].
func Address(l net.Listener, setting string) string {
	host, _, err := net.SplitHostPort(setting)
	bound, isTCP := l.Addr().(*net.TCPAddr)
	if err != nil || host == "" || !isTCP || !bound.IP.IsUnspecified() {
		return l.Addr().String()
	}
	return net.JoinHostPort(host, strconv.Itoa(bound.Port))
}
