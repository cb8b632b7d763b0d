package etcdkv

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCalls: what is asked of etcd, which verb, and which keys a prefix covers.
func TestCalls(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Key     []byte `json:"key"`
			End     []byte `json:"range_end"`
			Success []struct {
				Put Entry `json:"requestPut"`
			} `json:"success"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		asked = append(asked, fmt.Sprintf("%s %s-%s %d", strings.TrimPrefix(r.URL.Path, "/v3/kv/"), body.Key, body.End, len(body.Success)))
		_ = json.NewEncoder(w).Encode(map[string]any{"kvs": []Entry{{Key: []byte("/dpu/a"), Value: []byte{0, 1}}}})
	}))
	defer server.Close()
	c := &Client{URL: server.URL}
	got, err := c.All(t.Context(), "/dpu/")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Entry{{Key: []byte("/dpu/a"), Value: []byte{0, 1}}}, got); diff != "" {
		t.Error(diff)
	}
	if err := c.Delete(t.Context(), "/dpu/"); err != nil {
		t.Fatal(err)
	}
	if err := c.Put(t.Context(), make([]Entry, 2*mostOperations+1)); err != nil {
		t.Fatal(err)
	}
	if err := c.Put(t.Context(), []Entry{{Value: make([]byte, mostBytes)}, {}}); err != nil {
		t.Fatal(err)
	}
	want := []string{"range /dpu/-/dpu0 0", "deleterange /dpu/-/dpu0 0", "txn - 100", "txn - 100", "txn - 1", "txn - 1", "txn - 1"}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Error(diff)
	}
}

// TestRefused: what etcd says is in the error.
func TestRefused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no space", http.StatusInsufficientStorage)
	}))
	defer server.Close()
	if err := (&Client{URL: server.URL}).Delete(t.Context(), "/dpu/"); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("got %v", err)
	}
}
