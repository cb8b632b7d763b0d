package world

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/test/etcdkv"
)

const (
	own   = "11111111-2222-3333-4444-555555555555"
	other = "99999999-2222-3333-4444-555555555555"
)

func entries() []etcdkv.Entry {
	of := func(key, value string) etcdkv.Entry {
		return etcdkv.Entry{Key: []byte(registry + key), Value: []byte(value)}
	}
	return []etcdkv.Entry{
		of("minions/host-00000", "host-00000 in zone-000, "+own),
		of("vols/vol-00000-1", "vol-00000-1 on dpu-00000 of policy "+other),
		of("volumeattachments/"+VolumeAttachment("vol-00000-0", "host-00000"), "of "+own),
		of("policies/local", other),
		of("events/default/vol-00000-1.17", "an event"),
	}
}

// TestCopy: a copy has other names and other UIDs of its own, names what all share as
// before, and is as long as the original.
func TestCopy(t *testing.T) {
	got := pick(entries(), 2).of(0x2a)
	want := []etcdkv.Entry{
		{Key: []byte("/registry/minions/host-00042"), Value: []byte("host-00042 in zone-001, 11111111-2222-3333-4444-55555550002a")},
		{Key: []byte("/registry/vols/vol-00042-1"), Value: []byte("vol-00042-1 on dpu-00042 of policy " + other)},
		{Key: []byte(registry + "volumeattachments/" + VolumeAttachment("vol-00042-0", "host-00042")), Value: []byte("of 11111111-2222-3333-4444-55555550002a")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for i, e := range pick(entries(), 2).entries {
		if len(e.Key) != len(got[i].Key) || len(e.Value) != len(got[i].Value) {
			t.Errorf("%s has another length than %s", got[i].Key, e.Key)
		}
	}
}

// TestCopiesDiffer: no two hosts share a key.
func TestCopiesDiffer(t *testing.T) {
	seen, template := map[string]bool{}, pick(entries(), 2)
	for _, i := range []int{0, 1, 9, 10, 41, 4999, 99_999} {
		for _, e := range template.of(i) {
			if seen[string(e.Key)] {
				t.Errorf("%s is there twice", e.Key)
			}
			seen[string(e.Key)] = true
			if i != 0 && (strings.Contains(string(e.Key), "00000") || bytes.Contains(e.Value, []byte(own))) {
				t.Errorf("host %d has something of the first: %s", i, e.Key)
			}
		}
	}
}
