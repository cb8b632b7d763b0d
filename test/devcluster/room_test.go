package devcluster

import (
	"fmt"
	"strings"
	"testing"
)

func TestRoomFor(t *testing.T) {
	const g = uint64(1 << 30)
	for _, c := range []struct {
		name        string
		free, total uint64
		wantErr     string
	}{
		{name: "as much as needed", free: 5 * g, total: 100 * g},
		{name: "a little less", free: 5*g - 1<<20, total: 100 * g, wantErr: "has 5119Mi free and a bed needs 5Gi"},
		{name: "much on a large disk", free: 6 * g, total: 1000 * g, wantErr: "needs 14Gi"},
		{name: "nothing", total: 100 * g, wantErr: "has 0 free"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := roomFor(c.free, c.total)
			if c.wantErr == "" && err != nil || c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)) {
				t.Errorf("error %v, want one with %q", err, c.wantErr)
			}
		})
	}
}

// The check is worth nothing if the kubelets are told another number.
func TestRoomIsWhatKubeletsWant(t *testing.T) {
	text, err := files.ReadFile("files/kubelet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("nodefs.available: %d%%", evictionPercent); !strings.Contains(string(text), want) {
		t.Errorf("the kubelets' configuration has no %q: %s", want, text)
	}
}
