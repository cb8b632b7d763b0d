package snapemulator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/moor-storage/moor/internal/listen"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/snapemulator/fault"
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
	defer listen.CloseWith(ctx, l)()
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
	struck := e.faults.Take(method)
	if struck != nil && struck.When == fault.Before {
		if out := struck.Play(ctx, e.faults.Released()); out != fault.Proceed {
			return e.misbehave(w, c, struck, out)
		}
	}
	started := time.Now()
	result, failure := e.dispatch(ctx, method, c.Params)
	e.metrics.observe(method, failure, time.Since(started))
	if struck != nil && struck.When == fault.After {
		if out := struck.Play(ctx, e.faults.Released()); out != fault.Proceed {
			return e.misbehave(w, c, struck, out)
		}
	}
	if c.ID == nil { // a notification, JSON-RPC 2.0 section 4.1
		return true
	}
	out := reply{ID: c.ID, Result: result, Error: failure}
	if struck != nil && struck.Twice && !writeLine(w, out) {
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

// misbehave sends what the fault says and reports whether the connection goes
// on.
func (e *Emulator) misbehave(w io.Writer, c *call, f *fault.Fault, out fault.Outcome) bool {
	e.log.Info("fault struck", "method", *c.Method, "when", f.When)
	switch {
	case out == fault.Closed:
		return false
	case f.Error != nil:
		return writeLine(w, reply{ID: c.ID, Error: f.Error})
	case f.Garbage:
		_, err := io.WriteString(w, "\x00}garbage{\n")
		return err == nil
	default:
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`)
		return false
	}
}

// metrics are the emulator's own; methods that it does not know share a label,
// so that a caller cannot grow them without bound.
type metrics struct {
	seconds *prometheus.HistogramVec
	visible prometheus.Gauge
	known   map[string]handler
}

func newMetrics(reg prometheus.Registerer, known map[string]handler) *metrics {
	m := &metrics{
		known: known,
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "moor_snapemu_rpc_seconds",
			Help:    "Time in which a request was executed, by method and code (0 for success).",
			Buckets: []float64{.001, .005, .02, .1, .5, 2, 10, 60},
		}, []string{"method", "code"}),
		visible: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "moor_snapemu_visible_namespaces",
			Help: "Namespaces that the host can reach now.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.seconds, m.visible)
	}
	return m
}

func (m *metrics) observe(method string, failure *snaprpc.Error, took time.Duration) {
	if _, ok := m.known[method]; !ok {
		method = "unknown"
	}
	code := 0
	if failure != nil {
		code = failure.Code
	}
	m.seconds.WithLabelValues(method, strconv.Itoa(code)).Observe(took.Seconds())
}
