package cgroup

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	cases := []struct {
		name, text string
		want       []Hierarchy
	}{
		{
			name: "version 1 with a unified hierarchy beside it",
			text: `22 1 8:1 / / rw - ext4 /dev/vda rw
30 22 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:1 - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
34 30 0:28 / /sys/fs/cgroup/again rw - cgroup cgroup rw,cpuset
`,
			want: []Hierarchy{
				{Mount: "/sys/fs/cgroup/cpu,cpuacct", Controllers: []string{"rw", "cpu", "cpuacct"}},
				{Mount: "/sys/fs/cgroup/cpuset", Controllers: []string{"rw", "cpuset"}},
				{Mount: "/sys/fs/cgroup/unified", Unified: true, Controllers: []string{"rw"}},
			},
		},
		{
			name: "version 2 alone",
			text: "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
			want: []Hierarchy{{Mount: "/sys/fs/cgroup", Unified: true, Controllers: []string{"rw", "nsdelegate"}}},
		},
		{name: "mounted elsewhere", text: "30 22 0:26 / /mnt rw - cgroup2 cgroup2 rw\n"},
		{name: "garbage", text: "nothing\n\n - \n"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := Parse(strings.NewReader(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("hierarchies differ (-want +got):\n%s", d)
			}
		})
	}
}

func TestBelongs(t *testing.T) {
	cases := []struct {
		dir, machine string
		want         bool
	}{
		{"/sys/fs/cgroup/cpu/moor-dev/host-1", "host-1", true},
		{"/sys/fs/cgroup/cpu/moor-dev/host-1/kubepods/pod1", "host-1", true},
		{"/sys/fs/cgroup/cpu/moor-dev/host-10/sys", "host-1", false},
		{"/sys/fs/cgroup/cpu/moor-dev", "host-1", false},
		{"/sys/fs/cgroup/cpu/moor-dev", "", true},
	}
	for _, c := range cases {
		if got := belongs(c.dir, c.machine); got != c.want {
			t.Errorf("%s belongs to %q: %v, want %v", c.dir, c.machine, got, c.want)
		}
	}
}
