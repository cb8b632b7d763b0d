package exposures

import (
	"context"
	"testing"
)

// TestLock: a volume and a device are taken together or not at all, and each may
// be left out.
func TestLock(t *testing.T) {
	var w Work
	unlock, ok := w.Lock("v1-pvc", "dev1")
	if !ok {
		t.Fatal("free keys were refused")
	}
	for name, c := range map[string]struct{ volumeID, device string }{
		"the volume": {"v1-pvc", ""}, "the device": {"", "dev1"}, "a free volume, and the device": {"v2-pvc", "dev1"},
	} {
		if _, ok := w.Lock(c.volumeID, c.device); ok {
			t.Errorf("%s was given out twice", name)
		}
	}
	other, ok := w.Lock("v2-pvc", "dev2")
	if !ok {
		t.Fatal("a refused lock keeps the volume that it had taken")
	}
	other()
	// What has no volume, or no device, on record is not one thing.
	for _, c := range []struct{ volumeID, device string }{{"", "dev3"}, {"", "dev4"}, {"v3-pvc", ""}, {"v4-pvc", ""}, {"", ""}, {"", ""}} {
		if _, ok := w.Lock(c.volumeID, c.device); !ok {
			t.Errorf("%+v is free, and was refused", c)
		}
	}
	unlock()
	if _, ok := w.Lock("v1-pvc", "dev1"); !ok {
		t.Error("the keys were not given back")
	}
}

// TestInterrupt ends the pass over one volume, or all of them, and none that has
// finished.
func TestInterrupt(t *testing.T) {
	var w Work
	begin := func(volumeID string) context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		w.Begin(volumeID, cancel)
		return ctx
	}
	one, two, done := begin("v1-pvc"), begin("v2-pvc"), begin("v3-pvc")
	w.Finish("v3-pvc")
	w.Interrupt("v3-pvc")
	w.Interrupt("v1-pvc")
	if one.Err() == nil || two.Err() != nil {
		t.Fatalf("the pass over v1 has ended: %v, that over v2: %v", one.Err(), two.Err())
	}
	w.InterruptAll()
	if two.Err() == nil || done.Err() != nil {
		t.Fatalf("the pass over v2 has ended: %v, that over v3, which had finished: %v", two.Err(), done.Err())
	}
}
