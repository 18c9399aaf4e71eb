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

// The agent is msb's program in a box. Its socket on the host belongs to the box's relay, a process of msb that passes
// on the frames between us and the agent. The protocol consists of frames: a big-endian u32 length, a u32 id, a byte of
// flags, and an envelope in CBOR. It is documented in microsandbox's packages/agent-client, which promises that frames
// never change and that additions are optional. The agent is in a box, so nothing that it sends is trusted.
const (
	protocolVersion = 7       // of our messages; newer relays accept older versions
	maxFrame        = 4 << 20 // bytes that the relay accepts after the length
	frameHeader     = 5       // bytes of id and flags
	stdinChunk      = 256 << 10
	flagStart       = 2 // begins a session

	handshakeTimeout = 10 * time.Second
)

// errProtocol is wrapped by errors about messages of a box's agent.
var errProtocol = errors.New("the agent of the box violates the protocol")

// message is the content of a frame.
type message struct {
	id      uint32
	kind    string
	payload []byte
}

// agent is one connection to a box's agent, through the relay. When it is closed, the relay kills the processes that
// were started over it; when the box ends, the connection is closed.
type agent struct {
	conn net.Conn
	id   uint32 // the id of our messages: the lowest that the relay assigned to us, but at least 1

	writing sync.Mutex
}

// agentSocket returns the path of the relay's socket, which is the same in all releases.
func agentSocket(home, name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(home, "run", "sandboxes", hex.EncodeToString(sum[:12]), "agent.sock")
}

// dial connects and waits until the agent is ready.
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
		return nil, fmt.Errorf("connect to the agent of the box: %w", errors.Join(err, context.Cause(ctx)))
	}
	return a, nil
}

// handshake receives the ids for our messages, and waits until the agent is ready.
func (a *agent) handshake() error {
	if err := a.conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	var ids [8]byte
	if _, err := io.ReadFull(a.conn, ids[:]); err != nil {
		return err
	}
	a.id = max(1, binary.BigEndian.Uint32(ids[:4]))
	if a.id >= binary.BigEndian.Uint32(ids[4:]) {
		return fmt.Errorf("id range is empty: %w", errProtocol)
	}
	m, err := readFrame(a.conn)
	if err != nil {
		return err
	}
	if m.kind != kindReady {
		return fmt.Errorf("%.40q before %s: %w", m.kind, kindReady, errProtocol)
	}
	return a.conn.SetDeadline(time.Time{})
}

// send writes one message.
func (a *agent) send(flags byte, kind string, payload any) error {
	frame, err := encodeFrame(a.id, flags, kind, payload)
	if err != nil {
		return err
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	_, err = a.conn.Write(frame)
	return err
}

func encodeFrame(id uint32, flags byte, kind string, payload any) ([]byte, error) {
	encoded, err := encMode.Marshal(payload)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	body, err := encMode.Marshal(envelope{Protocol: protocolVersion, Kind: kind, Payload: encoded})
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	size := frameHeader + len(body)
	if size > maxFrame {
		return nil, fmt.Errorf("encode %s: frame is %d bytes; the limit is %d", kind, size, maxFrame)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+size), uint32(size))
	frame = binary.BigEndian.AppendUint32(frame, id)
	return append(append(frame, flags), body...), nil
}

// readFrame reads one frame of at most maxFrame bytes.
func readFrame(r io.Reader) (message, error) {
	var header [4 + frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return message{}, err
	}
	size := binary.BigEndian.Uint32(header[:4])
	if size < frameHeader || size > maxFrame {
		return message{}, fmt.Errorf("frame of %d bytes: %w", size, errProtocol)
	}
	body := make([]byte, size-frameHeader)
	if _, err := io.ReadFull(r, body); err != nil {
		return message{}, err
	}
	var e envelope
	if err := decode(body, &e); err != nil {
		return message{}, err
	}
	return message{id: binary.BigEndian.Uint32(header[4:8]), kind: e.Kind, payload: e.Payload}, nil
}

// decode decodes the payload.
func (m message) decode(into any) error {
	if err := decode(m.payload, into); err != nil {
		return fmt.Errorf("%.40q: %w", m.kind, err)
	}
	return nil
}
