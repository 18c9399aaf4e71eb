package microsandbox

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"time"
)

// The protocol of a sandbox's agent socket: frames of a big-endian u32 length, a u32 id, a byte of
// flags, and a CBOR map {v: generation, t: type, p: payload, itself CBOR}. It is documented by
// microsandbox's packages/agent-client, which promises that the frame never changes and that what is
// added is optional. What the other side sends comes from inside a box: nothing of it is trusted.
const (
	generation = 7       // of the messages that we send; newer relays take older ones
	maxFrame   = 4 << 20 // that the relay accepts, after the length
	frameHead  = 5       // id and flags
	stdinChunk = 256 << 10
	flagStart  = 2 // begins a session

	handshakeWait = 10 * time.Second
)

// errProtocol is wrapped by errors about what a box's agent said.
var errProtocol = errors.New("the agent of the box does not keep to the protocol")

// message is what a frame carries.
type message struct {
	id      uint32
	kind    string
	payload []byte
}

// agent is one connection to a sandbox's relay. When it closes, what was started over it is killed;
// when the sandbox ends, it closes.
type agent struct {
	conn   net.Conn
	lowest uint32 // id that we may use

	writing sync.Mutex
}

// agentSocket is where the relay of a sandbox listens; the layout is a contract between releases.
func agentSocket(home, name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(home, "run", "sandboxes", hex.EncodeToString(sum[:12]), "agent.sock")
}

// dial connects and waits for the agent's first word.
func dial(ctx context.Context, socket string) (*agent, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	a := &agent{conn: conn}
	if err := a.handshake(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("greet the agent of the box: %w", errors.Join(err, context.Cause(ctx)))
	}
	return a, nil
}

func (a *agent) handshake() error {
	if err := a.conn.SetDeadline(time.Now().Add(handshakeWait)); err != nil {
		return err
	}
	var ids [8]byte
	if _, err := io.ReadFull(a.conn, ids[:]); err != nil {
		return err
	}
	a.lowest = max(1, binary.BigEndian.Uint32(ids[:4]))
	if a.lowest >= binary.BigEndian.Uint32(ids[4:]) {
		return fmt.Errorf("no ids to use: %w", errProtocol)
	}
	m, err := readFrame(a.conn)
	if err != nil {
		return err
	}
	if m.kind != "core.ready" {
		return fmt.Errorf("%.40q before core.ready: %w", m.kind, errProtocol)
	}
	return a.conn.SetDeadline(time.Time{})
}

// ping asks the agent for a sign of life.
func (a *agent) ping(deadline time.Time) error {
	if err := a.conn.SetDeadline(deadline); err != nil {
		return err
	}
	if err := a.send(0, "core.ping"); err != nil {
		return err
	}
	for {
		m, err := readFrame(a.conn)
		switch {
		case err != nil:
			return err
		case m.id == a.lowest && m.kind == "core.pong":
			return nil
		case m.id == a.lowest:
			return fmt.Errorf("%.40q for a ping: %w", m.kind, errProtocol)
		}
	}
}

// send writes one message of the connection's only conversation.
func (a *agent) send(flags byte, kind string, payload ...field) error {
	frame, err := encodeFrame(a.lowest, flags, kind, payload...)
	if err != nil {
		return err
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	_, err = a.conn.Write(frame)
	return err
}

func encodeFrame(id uint32, flags byte, kind string, payload ...field) ([]byte, error) {
	body := appendMap(nil, field{"v", uint64(generation)}, field{"t", kind}, field{"p", appendMap(nil, payload...)})
	if frameHead+len(body) > maxFrame {
		return nil, fmt.Errorf("%s of %d bytes is too long", kind, len(body))
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+frameHead+len(body)), uint32(frameHead+len(body)))
	frame = binary.BigEndian.AppendUint32(frame, id)
	return append(append(frame, flags), body...), nil
}

// readFrame reads one frame of at most maxFrame bytes.
func readFrame(r io.Reader) (message, error) {
	var head [4 + frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return message{}, err
	}
	size := binary.BigEndian.Uint32(head[:4])
	if size < frameHead || size > maxFrame {
		return message{}, fmt.Errorf("a frame of %d bytes: %w", size, errProtocol)
	}
	body := make([]byte, size-frameHead)
	if _, err := io.ReadFull(r, body); err != nil {
		return message{}, err
	}
	fields, err := readMap(body)
	if err != nil {
		return message{}, err
	}
	m := message{id: binary.BigEndian.Uint32(head[4:8])}
	m.kind, _ = fields["t"].(string)
	m.payload, _ = fields["p"].([]byte)
	return m, nil
}

// fields reads the payload.
func (m message) fields() (map[string]any, error) {
	fields, err := readMap(m.payload)
	if err != nil {
		return nil, fmt.Errorf("%.40q: %w", m.kind, err)
	}
	return fields, nil
}
