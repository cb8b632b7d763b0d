package fleet

import "testing"

func TestCarried(t *testing.T) {
	for _, c := range []struct {
		b    Beats
		want bool
	}{
		{Beats{Answered: 22, Due: 22, senders: 20}, true},
		{Beats{Answered: 20, Due: 22, senders: 20}, true}, // by chance
		{Beats{Answered: 10, Due: 22, senders: 20}, false},
		{Beats{Answered: 11_400, Due: 12_000, senders: 2000}, true},
		{Beats{Answered: 11_300, Due: 12_000, senders: 2000}, false},
		{Beats{}, true},
	} {
		if got := c.b.Carried(); got != c.want {
			t.Errorf("%+v: %v", c.b, got)
		}
	}
}
