package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// tunnel handles CONNECT: it copies bytes in both directions.
func (c *connHandler) tunnel(h *hijacker, r *http.Request) {
	host, err := c.proxy.dial(r.Context(), r.Host)
	if err != nil {
		refuse(h, err)
		return
	}
	defer host.Close()
	stop := context.AfterFunc(r.Context(), func() { _ = host.Close() }) // also if the host is silent
	defer stop()
	conn, buffered, err := h.Hijack()
	if err != nil {
		return
	}
	_ = conn.SetDeadline(time.Time{}) // the connection to the host has an idle limit
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	var sending sync.WaitGroup
	sending.Go(func() { c.copy(host, buffered, host) })
	c.copy(conn, host, host)
	sending.Wait()
}

// copy copies until from ends, and then closes the sending direction of to. An error ends both directions.
func (c *connHandler) copy(to io.Writer, from io.Reader, host net.Conn) {
	_, err := io.Copy(to, from)
	if conn, ok := to.(net.Conn); ok && err == nil && closeWrite(conn) == nil {
		return
	}
	_ = host.Close()
	_ = c.conn.Close()
}

// hijacker records whether the connection was hijacked.
type hijacker struct {
	http.ResponseWriter
	hijacked bool
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	h.hijacked = h.hijacked || err == nil
	return conn, buffered, err
}

// Unwrap returns the response writer, for http.ResponseController.
func (h *hijacker) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// refuse responds to a request whose connection could not be made.
func refuse(w http.ResponseWriter, err error) {
	h, ok := w.(*hijacker)
	var r *refusal
	switch {
	case !ok:
		w.WriteHeader(http.StatusBadGateway)
	case !errors.As(err, &r):
		h.respond(http.StatusBadGateway, "the connection ended")
	case r.verdict == FailedDNS || r.verdict == FailedConnect:
		h.respond(http.StatusBadGateway, r.text)
	case r.verdict == BadRequest:
		h.respond(http.StatusBadRequest, r.text)
	default:
		h.respond(http.StatusForbidden, r.text)
	}
}

// After a refusal, the rest of the request is read up to these limits, so that the program can read the response.
const (
	lingerTime  = time.Second
	lingerBytes = 256 << 10
)

// respond ends the connection with a response whose status line contains the reason, because clients print the status
// line but not the body.
func (h *hijacker) respond(status int, reason string) {
	conn, buffered, err := h.Hijack()
	if err != nil {
		return
	}
	_ = conn.SetDeadline(time.Now().Add(lingerTime))
	body := "codefleet: " + reason + "\n"
	_, err = fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s", status, reason, len(body), body)
	if err == nil && closeWrite(conn) == nil {
		_, _ = io.CopyN(io.Discard, buffered, lingerBytes)
	}
}
