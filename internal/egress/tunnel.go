package egress

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// tunnel answers CONNECT: bytes both ways, unread.
func (s *session) tunnel(h *hijacker, r *http.Request) {
	up, err := s.proxy.dial(r.Context(), r.Host)
	if err != nil {
		refuse(h, err)
		return
	}
	defer up.Close()
	conn, buffered, err := h.Hijack()
	if err != nil {
		return
	}
	_ = conn.SetDeadline(time.Time{}) // idleness is watched on the other side
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	var ways sync.WaitGroup
	ways.Go(func() { s.copy(up, buffered, up) })
	s.copy(conn, up, up)
	ways.Wait()
}

// copy copies until the end, and hands the end on. After an error both directions end.
func (s *session) copy(to io.Writer, from io.Reader, up net.Conn) {
	_, err := io.Copy(to, from)
	if c, ok := to.(net.Conn); ok && err == nil && closeWrite(c) == nil {
		return
	}
	_ = up.Close()
	_ = s.conn.Close()
}

// hijacker knows whether the connection was taken from the server.
type hijacker struct {
	http.ResponseWriter
	taken bool
}

// Hijack takes the connection.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	h.taken = h.taken || err == nil
	return conn, buffered, err
}

// Unwrap lets others flush.
func (h *hijacker) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// refuse answers a request whose connection could not be made.
func refuse(w http.ResponseWriter, err error) {
	h, ok := w.(*hijacker)
	var why *refusal
	switch {
	case !ok:
		w.WriteHeader(http.StatusBadGateway)
	case !errors.As(err, &why):
		h.refuse(http.StatusBadGateway, "the connection ended")
	case why.verdict == FailedDNS || why.verdict == FailedConnect:
		h.refuse(http.StatusBadGateway, why.text)
	case why.verdict == BadRequest:
		h.refuse(http.StatusBadRequest, why.text)
	default:
		h.refuse(http.StatusForbidden, why.text)
	}
}

const (
	lingers     = time.Second // for the program to read an answer that it did not wait for
	lingerBytes = 256 << 10
)

// refuse ends the connection with a status whose reason says why: clients show that, and not a body.
func (h *hijacker) refuse(status int, reason string) {
	conn, buffered, err := h.Hijack()
	if err != nil {
		return
	}
	_ = conn.SetDeadline(time.Now().Add(lingers))
	body := "codefleet: " + reason + "\n"
	_, err = fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, reason, len(body), body)
	if err == nil && closeWrite(conn) == nil {
		_, _ = io.CopyN(io.Discard, buffered, lingerBytes)
	}
}
