package version

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBuilt(t *testing.T) {
	recorded := &debug.BuildInfo{Main: debug.Module{Version: "v0.3.0"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}}}
	for name, tc := range map[string]struct {
		stamped Build
		info    *debug.BuildInfo
		want    Build
	}{
		"stamped":        {Build{Version: "v1.0.0", Commit: "def"}, recorded, Build{Version: "v1.0.0", Commit: "def"}},
		"installed":      {Build{}, recorded, Build{Version: "v0.3.0", Commit: "abc"}},
		"from checkouts": {Build{}, &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, Build{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := tc.stamped
			if got.complete(tc.info); got != tc.want {
				t.Errorf("got, want: %s", cmp.Diff(got, tc.want))
			}
		})
	}
	if b := Built(); b.Version == "" || b.Commit == "" || b.Go != runtime.Version() {
		t.Errorf("built from %+v", b)
	}
}
