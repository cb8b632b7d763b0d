package places

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
)

func rack(value string) provisioner.Place { return provisioner.Place{"rack": value} }

func TestChoose(t *testing.T) {
	two := Places{rack("1"), rack("2")}
	for name, c := range map[string]struct {
		places Places
		wanted []provisioner.Place
		want   provisioner.Place
		err    error
	}{
		"no places":              {nil, []provisioner.Place{rack("1")}, nil, nil},
		"none is wanted":         {two, nil, rack("1"), nil},
		"the most preferred":     {two, []provisioner.Place{rack("2"), rack("1")}, rack("2"), nil},
		"the next with storage":  {two, []provisioner.Place{rack("3"), rack("2")}, rack("2"), nil},
		"no storage where asked": {two, []provisioner.Place{rack("3")}, nil, provisioner.ErrExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.places.Choose(c.wanted)
			if diff := cmp.Diff(c.want, got); diff != "" || !errors.Is(err, c.err) {
				t.Errorf("error %v, want %v; place (-want +got):\n%s", err, c.err, diff)
			}
			offered := len(c.wanted) == 0
			for _, w := range c.wanted {
				offered = offered || c.places.Offer(w)
			}
			if offered != (c.err == nil) {
				t.Errorf("storage is offered: %t", offered)
			}
		})
	}
}

func TestSince(t *testing.T) {
	for name, c := range map[string]struct {
		places         Places
		recorded, want provisioner.Place
	}{
		"no places":              {nil, nil, nil},
		"before there were":      {Places{rack("1"), rack("2")}, nil, rack("1")},
		"recorded":               {Places{rack("1"), rack("2")}, rack("2"), rack("2")},
		"recorded, and given up": {Places{rack("1")}, rack("2"), rack("2")},
	} {
		if diff := cmp.Diff(c.want, c.places.Since(c.recorded)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

func TestServes(t *testing.T) {
	more := provisioner.Place{"rack": "1", "dpu": "d"}
	for name, c := range map[string]struct {
		place  provisioner.Place
		wanted []provisioner.Place
		want   bool
	}{
		"wanted anywhere":       {rack("1"), nil, true},
		"at no place":           {nil, []provisioner.Place{rack("2")}, true},
		"wanted where it is":    {rack("1"), []provisioner.Place{rack("2"), rack("1")}, true},
		"wanted nearer":         {rack("1"), []provisioner.Place{more}, true},
		"wanted elsewhere":      {rack("1"), []provisioner.Place{rack("2")}, false},
		"wanted where it tells": {more, []provisioner.Place{rack("1")}, false},
	} {
		if got := Serves(c.place, c.wanted); got != c.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
