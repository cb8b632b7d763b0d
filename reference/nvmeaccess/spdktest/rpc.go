package spdktest

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
)

// The errors of SPDK's JSON-RPC that are answered here.
const (
	invalidParams = -32602
	internalError = -32603
)

// What SPDK says with its codes.
var (
	errSubsystem = errors.New("unable to find the subsystem")
	errInternal  = errors.New("internal error")
	errTimeout   = errors.New("timeout reached during host removal")
	errMethod    = errors.New("method not found")
)

type refusal struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Serve answers JSON-RPC on the listener until stop is called.
func (t *Target) Serve(l net.Listener) (stop func()) {
	var all sync.WaitGroup
	ended := make(chan struct{})
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				t.converse(conn, ended)
			})
		}
	})
	return func() {
		close(ended)
		l.Close()
		all.Wait()
	}
}

func (t *Target) converse(conn net.Conn, ended <-chan struct{}) {
	var req struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	dec := json.NewDecoder(conn)
	for dec.Decode(&req) == nil {
		result, fault, refused := t.call(req.Method, req.Params)
		answer := map[string]any{"jsonrpc": "2.0", "id": req.ID}
		switch {
		case fault == Lost || fault == Late:
			return
		case fault == Hang:
			hang(conn, ended)
			return
		case refused != nil:
			answer["error"] = refused
		default:
			answer["result"] = result
		}
		line, err := json.Marshal(answer)
		if err != nil {
			return
		}
		if fault == Half {
			line = line[:len(line)/2]
		}
		if _, err := conn.Write(line); err != nil || fault == Half {
			return
		}
	}
}

// hang returns when the caller gives up, or the target is stopped.
func hang(conn net.Conn, ended <-chan struct{}) {
	given := make(chan struct{})
	go func() {
		defer close(given)
		_, _ = io.Copy(io.Discard, conn)
	}()
	select {
	case <-given:
	case <-ended:
		conn.Close()
		<-given
	}
}

type target struct {
	NQN  string `json:"nqn"`
	Host string `json:"host"`
}

// call does one call, with the fault that it is to have.
func (t *Target) call(method string, raw json.RawMessage) (result any, fault Fault, refused *refusal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, method)
	fault = t.lies.Once[method]
	delete(t.lies.Once, method)
	var p target
	if len(raw) > 0 && json.Unmarshal(raw, &p) != nil {
		return nil, 0, &refusal{invalidParams, "Invalid parameters"}
	}
	switch fault {
	case Error:
		return nil, fault, &refusal{internalError, "Internal error"}
	case Late:
		t.late = append(t.late, func() { _, _ = t.do(method, p) })
		return nil, fault, nil
	case Hang:
		return nil, fault, nil
	case Empty:
		return t.empty(), fault, nil
	}
	result, err := t.do(method, p)
	if err != nil {
		refused = &refusal{internalError, err.Error()}
	}
	return result, fault, refused
}

// empty is a list of things that say nothing but a name.
func (t *Target) empty() any {
	out := []any{}
	for _, nqn := range slices.Sorted(maps.Keys(t.subsystems)) {
		out = append(out, map[string]any{"nqn": nqn})
	}
	return out
}

func (t *Target) do(method string, p target) (any, error) {
	if method == "nvmf_get_subsystems" {
		return t.listed(), nil
	}
	s, ok := t.subsystems[p.NQN]
	if !ok {
		return nil, errSubsystem
	}
	switch method {
	case "nvmf_subsystem_add_host":
		if s.hosts[p.Host] {
			return nil, errInternal
		}
		s.hosts[p.Host] = true
		return true, nil
	case "nvmf_subsystem_remove_host":
		return t.remove(s, p.Host)
	case "nvmf_subsystem_get_controllers":
		out := []any{}
		for _, c := range s.connections {
			out = append(out, map[string]any{"cntlid": c.id, "hostnqn": c.host, "hostid": "", "num_io_qpairs": 1})
		}
		return out, nil
	case "nvmf_subsystem_get_qpairs":
		out := []any{}
		for _, c := range s.connections {
			state := "enabled"
			if c.ended {
				state = "deactivating"
			}
			out = append(out, map[string]any{"cntlid": c.id, "qid": 1, "state": state})
		}
		return out, nil
	}
	return nil, errMethod
}

func (t *Target) listed() any {
	out := []any{map[string]any{"nqn": "nqn.2014-08.org.nvmexpress.discovery", "subtype": "Discovery", "allow_any_host": true, "hosts": []any{}}}
	for _, nqn := range slices.Sorted(maps.Keys(t.subsystems)) {
		s := t.subsystems[nqn]
		hosts, namespaces := []any{}, []any{}
		for _, h := range slices.Sorted(maps.Keys(s.hosts)) {
			hosts = append(hosts, map[string]any{"nqn": h})
		}
		for i, b := range s.bdevs {
			namespaces = append(namespaces, map[string]any{"nsid": i + 1, "bdev_name": b})
		}
		out = append(out, map[string]any{"nqn": nqn, "subtype": "NVMe", "allow_any_host": s.anyHost, "hosts": hosts, "namespaces": namespaces})
	}
	return out
}

// remove takes a host's access and disconnects it. Where commands of it are still under
// way, a target that does not lie says so.
func (t *Target) remove(s *subsystem, host string) (any, error) {
	if !s.hosts[host] {
		return nil, errInternal
	}
	if t.lies.ForgetsRemovals {
		return true, nil
	}
	delete(s.hosts, host)
	if t.lies.KeepsConnections {
		return true, nil
	}
	left := false
	for _, c := range slices.Clone(s.connections) {
		if c.host == host {
			c.end()
			left = left || slices.Contains(s.connections, c)
		}
	}
	if left && !t.lies.AnswersEarly {
		return nil, errTimeout
	}
	return true, nil
}
