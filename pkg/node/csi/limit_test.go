package csi

import (
	"errors"
	"testing"
)

func TestLimit(t *testing.T) {
	type said struct {
		kind  string
		total int64
	}
	for name, tc := range map[string]struct {
		kinds []string
		seen  []said
		want  int64
	}{
		"virtual ones alone":        {[]string{"vf"}, []said{{"hotplug", 31}}, 16},
		"hot-plugged ones alone":    {[]string{"hotplug"}, []said{{"hotplug", 31}}, 31},
		"both":                      {[]string{"vf", "hotplug"}, []said{{"hotplug", 31}}, 47},
		"the DPU was not heard of":  {[]string{"vf", "hotplug"}, nil, 16},
		"it has no switch":          {[]string{"vf", "hotplug"}, []said{{"vf", 64}}, 16},
		"it has another switch now": {[]string{"hotplug"}, []said{{"hotplug", 31}, {"hotplug", 8}}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := NewLimit(tc.kinds, func() (int64, error) { return 16, nil })
			if err != nil {
				t.Fatal(err)
			}
			l.Seen("pf", 2)
			for _, s := range tc.seen {
				l.Seen(s.kind, s.total)
			}
			s := New(Options{NodeID: "n1", Functions: l.Count})
			if got, err := s.NodeGetInfo(t.Context(), nil); tc.want > 0 && (err != nil || got.MaxVolumesPerNode != tc.want) {
				t.Errorf("%v, %v, want %d", got, err, tc.want)
			}
		})
	}
	for _, kinds := range [][]string{nil, {"pf"}, {"vf", "virtiofs"}} {
		if _, err := NewLimit(kinds, nil); err == nil {
			t.Errorf("%v is taken", kinds)
		}
	}
	broken := errors.New("sysfs")
	l, _ := NewLimit([]string{"hotplug", "vf"}, func() (int64, error) { return 0, broken })
	if _, err := l.Count(); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}
