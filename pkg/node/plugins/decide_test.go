package plugins

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPause(t *testing.T) {
	for failures, want := range map[int]time.Duration{
		1: 200 * time.Millisecond, 2: 400 * time.Millisecond, 7: 12800 * time.Millisecond, 8: 15 * time.Second, 1000: 15 * time.Second,
	} {
		if got := pause(failures); got != want {
			t.Errorf("after %d failures: %s, want %s", failures, got, want)
		}
	}
}

func TestRefused(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	cases := map[string]struct {
		claims []ownName
		want   map[string]string
	}{
		"none":          {nil, map[string]string{}},
		"different":     {[]ownName{{"a", "x", early}, {"b", "y", early}}, map[string]string{}},
		"without names": {[]ownName{{"a", "", early}, {"b", "", early}}, map[string]string{}},
		"older wins":    {[]ownName{{"a", "x", late}, {"b", "x", early}}, map[string]string{"a": "b"}},
		"any order":     {[]ownName{{"b", "x", early}, {"a", "x", late}}, map[string]string{"a": "b"}},
		"same age":      {[]ownName{{"b", "x", early}, {"a", "x", early}}, map[string]string{"b": "a"}},
		"three":         {[]ownName{{"c", "x", early}, {"a", "x", late}, {"b", "x", late}}, map[string]string{"a": "c", "b": "c"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, refused(c.claims)); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		})
	}
}
