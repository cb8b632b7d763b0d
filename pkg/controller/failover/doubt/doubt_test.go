package doubt

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestNote(t *testing.T) {
	type step struct {
		after       time.Duration
		host        types.UID
		kind        Kind
		limit, left time.Duration
	}
	const limit, other = 5 * time.Minute, 2 * time.Minute
	for name, tc := range map[string]struct {
		limits Limits
		steps  []step
	}{
		"it passes": {Limits{limit, other}, []step{
			{0, "a", NotReady, limit, limit},
			{2 * time.Minute, "a", NotReady, limit, 3 * time.Minute},
			{3 * time.Minute, "a", NotReady, limit, 0},
			{limit, "a", NotReady, limit, 0},
		}},
		"one that was interrupted begins anew": {Limits{limit, other}, []step{
			{0, "a", NotReady, limit, limit},
			{limit, "a", None, 0, 0},
			{time.Second, "a", NotReady, limit, limit},
		}},
		"one that has become another begins anew": {Limits{limit, other}, []step{
			{0, "a", NotReady, limit, limit},
			{4 * time.Minute, "a", DPUSilent, other, other},
			{time.Minute, "a", NotReady, limit, limit},
		}},
		"one of which nothing was noted begins anew": {Limits{limit, other}, []step{
			{0, "a", NotReady, limit, limit},
			{2 * limit, "a", NotReady, limit, limit},
		}},
		"one that is noted just in time goes on": {Limits{limit, other}, []step{
			{0, "a", NotReady, limit, limit},
			{2*limit - 1, "a", NotReady, limit, 0},
		}},
		"each host by itself": {Limits{limit, other}, []step{
			{0, "a", NotReady, limit, limit},
			{time.Minute, "b", NotReady, limit, limit},
			{time.Minute, "b", None, 0, 0},
			{time.Minute, "a", NotReady, limit, 2 * time.Minute},
		}},
		"without a limit": {Limits{DPUSilent: other}, []step{
			{0, "a", NotReady, 0, 0},
			{time.Hour, "a", NotReady, 0, 0},
			{0, "a", DPUSilent, other, other},
			{other, "a", DPUSilent, other, 0},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			timer, now := New(tc.limits), time.Unix(1e9, 0)
			for i, s := range tc.steps {
				now = now.Add(s.after)
				if limit, left := timer.Note(s.host, s.kind, now); limit != s.limit || left != s.left {
					t.Errorf("step %d: limit %s, left %s, want %s and %s", i, limit, left, s.limit, s.left)
				}
			}
		})
	}
}

func TestValidate(t *testing.T) {
	set := map[Kind]string{NotReady: "--not-ready", DPUSilent: "--silent"}
	for _, tc := range []struct {
		limits Limits
		want   string
	}{
		{Limits{}, ""}, {Limits{Least, Least}, ""}, {Limits{NotReady: Least - 1}, "--not-ready"}, {Limits{DPUSilent: -time.Hour}, "--silent"},
	} {
		err := tc.limits.Validate(set)
		if (err == nil) != (tc.want == "") || err != nil && !strings.HasPrefix(err.Error(), tc.want+" is") {
			t.Errorf("%+v: %v, want one of %q", tc.limits, err, tc.want)
		}
	}
}
