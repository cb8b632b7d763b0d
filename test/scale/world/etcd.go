package world

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// registry is the prefix under which an API server keeps all.
const registry = "/registry/"

// The most that one transaction of etcd takes.
const (
	mostOperations = 100
	mostBytes      = 1 << 20
)

// etcd is reached by the JSON form of its API, so that no client of it is needed.
type etcd struct{ url string }

// Entry is a key of etcd and what stands there: an object as the API server stored it.
type Entry struct {
	// Key has the prefix /registry/. JSON has both in base64.
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// all reads everything.
func (e *etcd) all(ctx context.Context) ([]Entry, error) {
	var out struct {
		Entries []Entry `json:"kvs"`
	}
	end := []byte(registry)
	end[len(end)-1]++
	err := e.call(ctx, "range", map[string][]byte{"key": []byte(registry), "range_end": end}, &out)
	return out.Entries, err
}

// put writes entries, some at a time.
func (e *etcd) put(ctx context.Context, entries []Entry) error {
	type operation struct {
		Put Entry `json:"requestPut"`
	}
	for len(entries) > 0 {
		var batch []operation
		for size := 0; len(entries) > 0 && len(batch) < mostOperations && size < mostBytes; entries = entries[1:] {
			batch = append(batch, operation{entries[0]})
			size += len(entries[0].Value)
		}
		if err := e.call(ctx, "txn", map[string]any{"success": batch}, &struct{}{}); err != nil {
			return err
		}
	}
	return nil
}

func (e *etcd) call(ctx context.Context, verb string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("encode a call of etcd: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+"/v3/kv/"+verb, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("call etcd: %w", err)
	}
	got, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("call etcd: %w", err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err == nil && got.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.300s", got.Status, text)
	}
	if err == nil {
		err = json.Unmarshal(text, answer)
	}
	if err != nil {
		return fmt.Errorf("call etcd: %s: %w", verb, err)
	}
	return nil
}
