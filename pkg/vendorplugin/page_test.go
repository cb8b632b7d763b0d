package vendorplugin

import (
	"errors"
	"slices"
	"testing"

	pluginv1 "github.com/moor-storage/moor/api/plugin/v1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// FuzzPages: walked page by page, a list has every device once, in order; a token
// that no page has handed out is refused.
func FuzzPages(f *testing.F) {
	f.Add("v1", "d1", "v2", "d2", "v1", "d0", 1, "")
	f.Add("", "", "", "a", "b", "", 2, "x")
	f.Add("a", "b\x00c", "a\x00b", "c", "a", "b", 0, "YWZ0ZXIA")
	f.Fuzz(func(t *testing.T, v1, d1, v2, d2, v3, d3 string, limit int, stray string) {
		all := []provisioner.Device{{VolumeID: v1, Name: d1}, {VolumeID: v2, Name: d2}, {VolumeID: v3, Name: d3}}
		want := map[string]bool{}
		for _, d := range all {
			want[key(d)] = true
		}
		limit = max(0, limit%4)
		var seen []string
		for token, pages := "", 0; ; pages++ {
			after, err := parseToken(token)
			if err != nil || pages > len(all) {
				t.Fatalf("page %d, token %q: %v", pages, token, err)
			}
			p := page(all, after, limit)
			if limit > 0 && len(p.Entries) > limit {
				t.Fatalf("%d entries, at most %d", len(p.Entries), limit)
			}
			for _, e := range p.Entries {
				seen = append(seen, key(provisioner.Device{VolumeID: e.GetVolumeId(), Name: e.GetDeviceName()}))
			}
			if token = p.NextToken; token == "" {
				break
			}
		}
		if !slices.IsSorted(seen) || len(slices.Compact(slices.Clone(seen))) != len(want) {
			t.Fatalf("%q of %v", seen, want)
		}
		if after, err := parseToken(stray); err == nil && stray != "" && tokenOf(after) != stray {
			t.Fatalf("token %q means %q", stray, after)
		} else if err != nil && !errors.Is(err, errBadToken) {
			t.Fatal(err)
		}
	})
}

// FuzzModes: access modes from a plugin are understood whole or refused.
func FuzzModes(f *testing.F) {
	f.Add(int32(1), int32(2), "Block")
	f.Add(int32(0), int32(4), "")
	f.Add(int32(99), int32(-1), "block")
	f.Fuzz(func(t *testing.T, one, two int32, mode string) {
		wire := []pluginv1.AccessMode{pluginv1.AccessMode(one), pluginv1.AccessMode(two)}
		got, err := fromWire(wire)
		if err != nil {
			if !errors.Is(err, provisioner.ErrInvalid) || got != nil {
				t.Fatalf("%v, %v", got, err)
			}
		} else {
			back, err := toWire(got)
			said := slices.DeleteFunc(wire, func(m pluginv1.AccessMode) bool { return m == pluginv1.AccessMode_ACCESS_MODE_UNSPECIFIED })
			if err != nil || !slices.Equal(back, said) {
				t.Fatalf("%v became %v, and that %v, %v", said, got, back, err)
			}
		}
		m, err := modeOf(mode)
		if known := mode == "" || mode == "Block" || mode == "Filesystem"; known != (err == nil) || known == (m == "") {
			t.Fatalf("%q is %q, %v", mode, m, err)
		}
	})
}
