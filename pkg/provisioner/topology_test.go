package provisioner

import "testing"

func TestReachFrom(t *testing.T) {
	rack := func(v string) Place { return Place{"rack": v} }
	both := func(rack, row string) Place { return Place{"rack": rack, "row": row} }
	for name, tc := range map[string]struct {
		at     Place
		places []Place
		want   Reach
	}{
		"from everywhere":                {rack("1"), nil, Reached},
		"from everywhere, nothing told":  {nil, nil, Reached},
		"there":                          {rack("1"), []Place{rack("1")}, Reached},
		"one of several":                 {rack("2"), []Place{rack("1"), rack("2")}, Reached},
		"elsewhere":                      {rack("3"), []Place{rack("1"), rack("2")}, Elsewhere},
		"more is told than counts":       {both("1", "a"), []Place{rack("1")}, Reached},
		"less is told than counts":       {rack("1"), []Place{both("1", "a")}, Unclear},
		"what is told speaks against it": {rack("1"), []Place{both("2", "a")}, Elsewhere},
		"perhaps one of several":         {rack("1"), []Place{rack("2"), both("1", "a")}, Unclear},
		"nothing is told":                {nil, []Place{rack("1")}, Unclear},
		"one value of two differs":       {both("1", "b"), []Place{both("1", "a")}, Elsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ReachFrom(tc.at, tc.places); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
