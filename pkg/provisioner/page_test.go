package provisioner

import (
	"slices"
	"strconv"
	"testing"
)

func TestCut(t *testing.T) {
	ids := []string{"a", "b", "c"}
	for name, tc := range map[string]struct {
		page Page
		want []string
		next string
	}{
		"all":                  {Page{}, ids, ""},
		"first":                {Page{Max: 2}, []string{"a", "b"}, "b"},
		"exactly all":          {Page{Max: 3}, ids, ""},
		"second":               {Page{After: "b", Max: 2}, []string{"c"}, ""},
		"after what is gone":   {Page{After: "aa", Max: 1}, []string{"b"}, "b"},
		"after the last":       {Page{After: "c"}, nil, ""},
		"far after the last":   {Page{After: "x", Max: 5}, nil, ""},
		"before everything":    {Page{After: "0", Max: 1}, []string{"a"}, "a"},
		"nothing to choose":    {Page{Max: 0}, ids, ""},
		"one that is repeated": {Page{After: "a", Max: 1}, []string{"b"}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			got, next := tc.page.Cut(ids)
			if !slices.Equal(got, tc.want) || next != tc.next {
				t.Errorf("got %v, next %q, want %v, next %q", got, next, tc.want, tc.next)
			}
		})
	}
}

// FuzzCut: whatever comes and goes between pages, what stays is met once.
func FuzzCut(f *testing.F) {
	f.Add(uint8(3), []byte{1, 200, 3, 77})
	f.Fuzz(func(t *testing.T, most uint8, churn []byte) {
		stay, have := map[string]int{}, []string{}
		for i := range 20 {
			id := strconv.Itoa(i * 7 % 20)
			stay[id], have = 0, append(have, id)
		}
		page := Page{Max: int(most%9) + 1}
		for round := 0; ; round++ {
			slices.Sort(have)
			got, next := page.Cut(have)
			for _, id := range got {
				if _, stays := stay[id]; stays {
					stay[id]++
				}
			}
			if next == "" {
				break
			}
			page.After = next
			if round < len(churn) { // one that does not stay comes, or goes
				other := "x" + strconv.Itoa(int(churn[round]%8))
				if i := slices.Index(have, other); i >= 0 {
					have = slices.Delete(have, i, i+1)
				} else {
					have = append(have, other)
				}
			}
		}
		for id, met := range stay {
			if met != 1 {
				t.Fatalf("%s was met %d times", id, met)
			}
		}
	})
}
