package snaprpc

import "testing"

func TestFSDevName(t *testing.T) {
	// FNV-1a of the empty string and of "a", from its authors' test vectors.
	for id, want := range map[string]string{"": "cbf29ce484222325", "a": "af63dc4c8601ec8c"} {
		if got := FSDevName(id); got != want {
			t.Errorf("fsdev %q of %q, want %q", got, id, want)
		}
	}
}
