package snapemulator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/snapemulator/model"
)

// maxRequest bounds one request, in bytes.
const maxRequest = 1 << 20

// serve accepts connections until ctx ends, then closes them all and waits for
// their handlers.
func (e *Emulator) serve(ctx context.Context, l net.Listener) error {
	var handlers sync.WaitGroup
	defer handlers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept on %s: %w", l.Addr(), err)
		}
		handlers.Add(1)
		go func() {
			defer handlers.Done()
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			e.converse(ctx, conn)
		}()
	}
}

// converse answers the requests of one connection, one after the other, until
// it ends. A request that is no JSON ends it, since its end cannot be found.
func (e *Emulator) converse(ctx context.Context, conn io.ReadWriter) {
	limited := &io.LimitedReader{R: conn}
	dec := json.NewDecoder(limited)
	for {
		limited.N = maxRequest
		var raw json.RawMessage
		err := dec.Decode(&raw)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, io.ErrUnexpectedEOF) && limited.N > 0:
			return // half a request and then the end
		case err != nil:
			writeLine(conn, reply{ID: null, Error: &snaprpc.Error{Code: snaprpc.CodeParse, Message: "Parse error"}})
			return
		}
		if !e.answer(ctx, conn, raw) {
			return
		}
	}
}

// call is a request as it came.
type call struct {
	Version json.RawMessage `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  *string         `json:"method"`
	Params  json.RawMessage `json:"params"`
}

type reply struct {
	ID     json.RawMessage
	Result any
	Error  *snaprpc.Error
}

var null = json.RawMessage("null")

// MarshalJSON writes either the error or the result, never both.
func (r reply) MarshalJSON() ([]byte, error) {
	if r.Error != nil {
		return json.Marshal(struct {
			Version string          `json:"jsonrpc"`
			ID      json.RawMessage `json:"id"`
			Error   *snaprpc.Error  `json:"error"`
		}{"2.0", r.ID, r.Error})
	}
	return json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  any             `json:"result"`
	}{"2.0", r.ID, r.Result})
}

// answer runs one request and reports whether the connection goes on.
func (e *Emulator) answer(ctx context.Context, w io.Writer, raw json.RawMessage) bool {
	c, err := parseCall(raw)
	if err != nil {
		return writeLine(w, reply{ID: null, Error: err})
	}
	method := *c.Method
	fault := e.faults.take(method)
	if fault != nil && fault.When == before {
		if out := fault.play(ctx, e.faults.released()); out != proceed {
			return e.misbehave(w, c, fault, out)
		}
	}
	started := time.Now()
	result, failure := e.dispatch(ctx, method, c.Params)
	e.metrics.observe(method, failure, time.Since(started))
	if fault != nil && fault.When == after {
		if out := fault.play(ctx, e.faults.released()); out != proceed {
			return e.misbehave(w, c, fault, out)
		}
	}
	if c.ID == nil { // a notification, JSON-RPC 2.0 section 4.1
		return true
	}
	out := reply{ID: c.ID, Result: result, Error: failure}
	if fault != nil && fault.Twice && !writeLine(w, out) {
		return false
	}
	return writeLine(w, out)
}

func parseCall(raw json.RawMessage) (*call, *snaprpc.Error) {
	invalid := &snaprpc.Error{Code: snaprpc.CodeInvalidRequest, Message: "Invalid Request"}
	var c call
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, invalid
	}
	if string(c.Version) != `"2.0"` || c.Method == nil || *c.Method == "" {
		return nil, invalid
	}
	if len(c.ID) > 0 && bytes.ContainsAny(c.ID[:1], "{[tf") {
		return nil, invalid // an id is a string, a number or null
	}
	return &c, nil
}

// dispatch runs the method and puts its error into the service's words.
func (e *Emulator) dispatch(ctx context.Context, method string, params json.RawMessage) (any, *snaprpc.Error) {
	run, ok := e.methods[method]
	if !ok {
		return nil, &snaprpc.Error{Code: snaprpc.CodeMethodNotFound, Message: "Method not found"}
	}
	result, err := run(ctx, e, params)
	if err == nil {
		return result, nil
	}
	e.log.V(1).Info("refused", "method", method, "reason", err.Error())
	var refused *model.Error
	var rpc *snaprpc.Error
	switch {
	case errors.As(err, &rpc):
		return nil, rpc
	case errors.As(err, &refused):
		return nil, &snaprpc.Error{Code: -int(refused.Errno), Message: refused.Text}
	default:
		return nil, &snaprpc.Error{Code: snaprpc.CodeInternal, Message: "Internal error: " + err.Error()}
	}
}

// writeLine sends one answer as one line, as the vendor plugins expect it.
func writeLine(w io.Writer, r reply) bool {
	line, err := json.Marshal(r)
	if err != nil {
		return false
	}
	_, err = w.Write(append(line, '\n'))
	return err == nil
}
