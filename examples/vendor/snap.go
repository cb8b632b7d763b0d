package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// call makes one JSON-RPC call of SNAP. An error that SNAP answered is final and
// has the errno; without an answer the outcome is not known: ErrUnavailable.
func (h host) call(ctx context.Context, method string, params, result any) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", h.snap)
	if err != nil {
		return fmt.Errorf("%s: connect to SNAP: %w: %w", method, err, provisioner.ErrUnavailable)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var answer struct {
		Result json.RawMessage
		Error  *struct {
			Code    int
			Message string
		}
	}
	request := map[string]any{"jsonrpc": "2.0", "id": 1, "method": method}
	if params != nil {
		request["params"] = params
	}
	if err := errors.Join(json.NewEncoder(conn).Encode(request), json.NewDecoder(conn).Decode(&answer)); err != nil {
		return fmt.Errorf("%s: no answer of SNAP: %w: %w", method, err, provisioner.ErrUnavailable)
	}
	if answer.Error != nil {
		return fmt.Errorf("%s: SNAP refuses: %s: %w", method, answer.Error.Message, syscall.Errno(-answer.Error.Code))
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(answer.Result, result)
}
