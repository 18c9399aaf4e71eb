package mcp

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// requests counts a server's requests to which no response was written yet. The SDK keeps these requests without a
// limit, so a server that sends requests and reads no response would exhaust the memory.
type requests struct {
	limit int // bytes of all open requests, if there are several

	mu    sync.Mutex
	open  []int // their sizes; a response ends the oldest, whatever its id, because a server may use an id twice
	bytes int   // the sum of open
}

func newRequests(limit int) *requests { return &requests{limit: limit} }

// maxRequests is how many requests of a server may be open. A server asks for little, because the client has no
// capabilities.
const maxRequests = 100

var errTooManyRequests = errors.New("the server sends requests and does not wait for the responses")

// received counts a message of the server. It returns errTooManyRequests if too many requests are open.
func (r *requests) received(message jsonrpc.Message, size int) error {
	request, ok := message.(*jsonrpc.Request)
	if r == nil || !ok || !request.IsCall() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open, r.bytes = append(r.open, size), r.bytes+size
	if len(r.open) > maxRequests || len(r.open) > 1 && r.bytes > r.limit {
		return errTooManyRequests
	}
	return nil
}

// sent counts a message to the server.
func (r *requests) sent(message io.Reader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.open) == 0 {
		return
	}
	data, err := io.ReadAll(message)
	if err != nil {
		return
	}
	decoded, err := jsonrpc.DecodeMessage(bytes.TrimSpace(data))
	if err != nil {
		return
	}
	if _, ok := decoded.(*jsonrpc.Response); ok {
		r.bytes -= r.open[0]
		r.open = slices.Delete(r.open, 0, 1)
	}
}

// requestWriter counts the messages that it writes, one per write.
type requestWriter struct {
	io.WriteCloser
	requests *requests
}

func (w requestWriter) Write(message []byte) (int, error) {
	n, err := w.WriteCloser.Write(message)
	w.requests.sent(bytes.NewReader(message))
	return n, err
}
