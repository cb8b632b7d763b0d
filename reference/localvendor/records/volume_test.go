package records

import (
	"testing"
)

func TestFits(t *testing.T) {
	for name, c := range map[string]struct {
		how                     string
		have, size, total, free int64
		want                    bool
	}{
		"thick, as much as is free":        {Thick, 4, 10, 100, 6, true},
		"thick, more than is free":         {Thick, 4, 11, 100, 6, false},
		"thick, no larger on a full disk":  {Thick, 4, 4, 100, 0, true},
		"thin, more than is free":          {Thin, 4, 100, 100, 6, true},
		"thin, more than there is in all":  {Thin, 4, 101, 100, 100, false},
		"thick, more than there is in all": {Thick, 50, 101, 100, 60, false},
	} {
		if got := (Volume{CapacityBytes: c.have, Provisioning: c.how}).Fits(c.size, c.total, c.free); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
