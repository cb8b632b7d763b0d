package daemon

import "testing"

// TestBootID: one boot has one name.
func TestBootID(t *testing.T) {
	one, err := BootID()
	if err != nil {
		t.Fatal(err)
	}
	if other, err := BootID(); err != nil || other != one || one == "" {
		t.Errorf("%q, and then %q, %v", one, other, err)
	}
}
