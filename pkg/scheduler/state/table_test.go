package state

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A table must behave as a map, and no change may reach an older table.
func TestTableIsAnImmutableMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	now, model := &table[int]{}, map[string]int{}
	type version struct {
		table *table[int]
		model map[string]int
	}
	var old []version
	for step := range 20_000 {
		key := fmt.Sprint("key-", r.IntN(6000))
		if r.IntN(3) == 0 {
			now = now.without(key)
			delete(model, key)
		} else {
			now = now.with(key, step)
			model[key] = step
		}
		if step%4000 == 0 {
			old = append(old, version{now, maps.Clone(model)})
		}
	}
	for _, v := range append(old, version{now, model}) {
		if diff := cmp.Diff(v.model, v.table.contents()); diff != "" || v.table.size != len(v.model) {
			t.Fatalf("size %d of %d: %s", v.table.size, len(v.model), diff)
		}
		for key := range v.model {
			if got, ok := v.table.get(key); !ok || got != v.model[key] {
				t.Fatalf("get %s: %d, %v; want %d", key, got, ok, v.model[key])
			}
		}
		if _, ok := v.table.get("never"); ok {
			t.Error("a key is there that never was put in")
		}
	}
}

func (t *table[V]) contents() map[string]V {
	out := map[string]V{}
	for _, l := range t.levels {
		if l == nil {
			continue
		}
		for _, leaf := range l {
			for _, e := range leaf {
				out[e.key] = e.value
			}
		}
	}
	return out
}

func BenchmarkTableWith(b *testing.B) {
	t := &table[string]{}
	for i := range 50_000 {
		t = t.with(fmt.Sprint("namespace/claim-", i), "v")
	}
	b.ReportAllocs()
	for b.Loop() {
		t.with("namespace/claim-7", "w")
	}
}

// BenchmarkMapWith is the same change of a plain map that is copied each time,
// which is what an index that never changes would cost without table.
func BenchmarkMapWith(b *testing.B) {
	m := map[string]string{}
	for i := range 50_000 {
		m[fmt.Sprint("namespace/claim-", i)] = "v"
	}
	b.ReportAllocs()
	for b.Loop() {
		next := maps.Clone(m)
		next["namespace/claim-7"] = "w"
	}
}
