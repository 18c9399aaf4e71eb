// Command byhand publishes a task over NATS on a plain TCP connection, without a library. The task is a CloudEvent in
// binary mode: a message whose headers are the event's attributes. The command prints the acknowledgement that the task
// is stored, then the result.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:4222", "host and port of the NATS server")
	user := flag.String("user", "", "user")
	password := flag.String("password", "", "password")
	tenant := flag.String("tenant", "default", "tenant of the task")
	code := flag.String("code", "print(6*7)", "code of the program")
	flag.Parse()
	if err := run(*addr, *user, *password, *tenant, *code); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(addr, user, password, tenant, code string) error {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	inbox := "_INBOX." + tenant + "." + rand.Text()
	login, _ := json.Marshal(map[string]any{
		"user": user, "pass": password, "headers": true, "verbose": false, "pedantic": false,
	})
	data, _ := json.Marshal(map[string]any{"code": code})
	header := strings.Join([]string{
		"NATS/1.0",
		"ce-specversion: 1.0", "ce-type: codefleet.task.v1", "ce-source: /examples/producers/byhand",
		"ce-id: " + rand.Text(), "ce-replyto: " + inbox + ".result", "ce-datacontenttype: application/json", "", "",
	}, "\r\n")
	fmt.Fprintf(conn, "CONNECT %s\r\nSUB %s.> 1\r\nHPUB tasks.default.normal.%s %s.stored %d %d\r\n%s%s\r\n",
		login, inbox, tenant, inbox, len(header), len(header)+len(data), header, data)

	in := bufio.NewReader(conn)
	for range 2 { // the acknowledgement and the result
		payload, err := readMessage(conn, in)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", payload)
	}
	return nil
}

// readMessage returns the payload of the next message. Before that, it responds to the server's pings.
func readMessage(out io.Writer, in *bufio.Reader) ([]byte, error) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "PING"):
			fmt.Fprint(out, "PONG\r\n")
		case strings.HasPrefix(line, "-ERR"):
			return nil, fmt.Errorf("server: %s", strings.TrimSpace(line))
		case strings.HasPrefix(line, "MSG "), strings.HasPrefix(line, "HMSG "): // … [header size] size
			size, err := strconv.Atoi(fields[len(fields)-1])
			header := 0
			if err == nil && fields[0] == "HMSG" {
				header, err = strconv.Atoi(fields[len(fields)-2])
			}
			if err != nil {
				return nil, err
			}
			body := make([]byte, size+2)
			if _, err := io.ReadFull(in, body); err != nil {
				return nil, err
			}
			return body[header:size], nil
		}
	}
}
