// Package etcdkv reads and writes what API servers keep in etcd, past the API servers: for
// worlds that are too large to be made object by object, and for restores from a backup.
package etcdkv

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// The most that one transaction of etcd takes.
const (
	mostOperations = 100
	mostBytes      = 1 << 20
)

// Client reaches an etcd by the JSON form of its API, so that no client library is needed.
type Client struct {
	// URL is where etcd listens for clients, with http.
	URL string
	// HTTP sends the requests; nil is http.DefaultClient.
	HTTP *http.Client
}

// Entry is a key of etcd and what stands there: an object as the API server stored it.
type Entry struct {
	// Key begins with the prefix of the API server. JSON has both in base64.
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// All reads everything whose key begins with the prefix.
func (c *Client) All(ctx context.Context, prefix string) ([]Entry, error) {
	var out struct {
		Entries []Entry `json:"kvs"`
	}
	err := c.call(ctx, "range", span(prefix), &out)
	return out.Entries, err
}

// Put writes entries, some at a time. They have no lease: what would have gone by itself stays.
func (c *Client) Put(ctx context.Context, entries []Entry) error {
	type operation struct {
		Put Entry `json:"requestPut"`
	}
	for len(entries) > 0 {
		var batch []operation
		for size := 0; len(entries) > 0 && len(batch) < mostOperations && size < mostBytes; entries = entries[1:] {
			batch = append(batch, operation{entries[0]})
			size += len(entries[0].Value)
		}
		if err := c.call(ctx, "txn", map[string]any{"success": batch}, &struct{}{}); err != nil {
			return err
		}
	}
	return nil
}

// Delete removes everything whose key begins with the prefix.
func (c *Client) Delete(ctx context.Context, prefix string) error {
	return c.call(ctx, "deleterange", span(prefix), &struct{}{})
}

// span is the range of the keys that begin with the prefix, which must not be empty.
func span(prefix string) map[string][]byte {
	end := []byte(prefix)
	end[len(end)-1]++
	return map[string][]byte{"key": []byte(prefix), "range_end": end}
}

func (c *Client) call(ctx context.Context, verb string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("encode a call of etcd: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/v3/kv/"+verb, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("call etcd: %w", err)
	}
	sender := c.HTTP
	if sender == nil {
		sender = http.DefaultClient
	}
	got, err := sender.Do(request)
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
