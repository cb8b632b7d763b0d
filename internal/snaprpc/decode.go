package snaprpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// maxAnswer bounds what is read for one answer, in bytes. A full listing of
// 127 functions and as many namespaces is under 200 KiB.
const maxAnswer = 16 << 20

type answer struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Error   *Error          `json:"error"`
	Result  json.RawMessage `json:"result"`
}

// decodeAnswer reads one JSON object from r, checks that it answers request id
// and decodes its result. It does not wait for the end of the line: some
// versions send none.
func decodeAnswer(r io.Reader, id int64, result any) error {
	limited := &io.LimitedReader{R: r, N: maxAnswer}
	var a answer
	if err := json.NewDecoder(limited).Decode(&a); err != nil {
		if limited.N <= 0 {
			return fmt.Errorf("%w: the answer is longer than %d bytes", ErrUnavailable, maxAnswer)
		}
		return fmt.Errorf("%w: read the answer: %w", ErrUnavailable, err)
	}
	if err := a.check(id); err != nil {
		return err
	}
	if result == nil {
		return nil
	}
	if isNull(a.Result) {
		return fmt.Errorf("%w: the answer carries no result", ErrUnavailable)
	}
	if err := json.Unmarshal(a.Result, result); err != nil {
		return fmt.Errorf("%w: the result has another shape than expected: %w", ErrUnavailable, err)
	}
	return nil
}

// check returns the service's refusal, or why a is no answer to request id.
func (a *answer) check(id int64) error {
	if a.Version != "2.0" {
		return fmt.Errorf("%w: the answer is not JSON-RPC 2.0", ErrUnavailable)
	}
	// A request that the service could not parse is refused with id null
	// (JSON-RPC 2.0 section 5).
	if a.Error != nil && isNull(a.ID) {
		return a.Error
	}
	var got int64
	if err := json.Unmarshal(a.ID, &got); err != nil || got != id || isNull(a.ID) {
		return fmt.Errorf("%w: the answer is for request %.40s, not %d", ErrUnavailable, a.ID, id)
	}
	if a.Error != nil {
		return a.Error
	}
	return nil
}

func isNull(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}
