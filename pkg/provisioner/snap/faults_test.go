package snap

import (
	"testing"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
)

// faultKinds are the ways in which a call goes wrong.
var faultKinds = map[string]map[string]any{
	"error before":      {"error": map[string]any{"code": -5, "message": "Input/output error"}},
	"error after":       {"when": "after", "error": map[string]any{"code": -5, "message": "Input/output error"}},
	"refused before":    {"error": map[string]any{"code": -22, "message": "Invalid parameters"}},
	"refused after":     {"when": "after", "error": map[string]any{"code": -22, "message": "Invalid parameters"}},
	"exists after":      {"when": "after", "error": map[string]any{"code": -17, "message": "File exists"}},
	"not found before":  {"error": map[string]any{"code": -2, "message": "No such file or directory"}},
	"hang before":       {"hang": true},
	"hang after":        {"when": "after", "hang": true},
	"garbage":           {"when": "after", "garbage": true},
	"half an answer":    {"when": "after", "half": true},
	"drop before":       {"drop": true},
	"drop after":        {"when": "after", "drop": true},
	"error three times": {"count": 3, "error": map[string]any{"code": -5, "message": "Input/output error"}},
}

// TestFaults lets every call go wrong in every way, while exposing and while
// withdrawing: the repeated call converges and nothing is left behind.
func TestFaults(t *testing.T) {
	for _, method := range methods {
		for kind, fault := range faultKinds {
			t.Run(method+"/"+kind, func(t *testing.T) {
				t.Parallel()
				s := newService(t)
				s.addDevice("d")
				d := New(s.clientFor(fault), service.Options{})
				full := map[string]any{"method": method}
				for k, v := range fault {
					full[k] = v
				}
				s.inject(full)
				exposed := true
				for _, hidden := range []bool{true, false, true, false} {
					spec := vfOf("d")
					spec.Hidden = hidden
					exposed = exposed && s.untilDone(func() error {
						e, err := d.Expose(t.Context(), spec)
						if err != nil && !provisioner.Uncertain(err) {
							s.wantEmpty()
						}
						if err == nil && (e.Hidden != hidden || e.Visible == hidden) {
							t.Errorf("hidden is %v, got %+v", hidden, e)
						}
						return err
					})
					s.call("moor_clear", nil)
					s.inject(full)
				}
				s.call("moor_clear", nil)
				s.inject(full)
				s.untilDone(func() error { return d.Withdraw(t.Context(), "d") })
				s.call("moor_clear", nil)
				s.wantEmpty()
				if !exposed {
					t.Fatal("never exposed")
				}
			})
		}
	}
}
