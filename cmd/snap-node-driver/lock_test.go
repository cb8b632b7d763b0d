package main

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestLock: a second driver waits until the first one has ended.
func TestLock(t *testing.T) {
	o := options{pluginRoot: t.TempDir() + "/plugins"}
	unlock, err := o.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 3*lockRetry)
	defer cancel()
	if _, err := o.lock(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("two drivers on one DPU: %v", err)
	}
	elsewhere := options{pluginRoot: o.pluginRoot, stateDir: t.TempDir()}
	other, err := elsewhere.lock(t.Context())
	if err != nil {
		t.Fatalf("--state-dir is not heeded: %v", err)
	}
	other()
	got := make(chan error, 1)
	go func() {
		second, err := o.lock(t.Context())
		if err == nil {
			second()
		}
		got <- err
	}()
	unlock()
	select {
	case err := <-got:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the second driver never ends its wait")
	}
}
